# A static binary alone. The context is the folder that holds it.
FROM scratch
COPY prometheus /prometheus
USER 65534:65534
ENTRYPOINT ["/prometheus"]
