# A real vLLM for CPUs. The context is the folder of packages of an environment that has it, of the base's Python version.
ARG BASE=python:3.11-slim
FROM ${BASE}
COPY . /opt/vllm
ENV PYTHONPATH=/opt/vllm PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
