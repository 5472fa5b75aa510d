"""Everything `make run` and the integration tests need on one machine.

A real control plane (etcd, kube-apiserver, kube-controller-manager,
kube-scheduler) with kwok in the kubelet's place and a real Prometheus, all as
plain processes of the calling user: no Docker, no root, no container images.
"""
