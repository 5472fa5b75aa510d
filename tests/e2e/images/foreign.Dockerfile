# A static engine that nobody here wrote. The context is a folder with a copy of it.
FROM scratch
COPY engine /engine
USER 65534:65534
ENTRYPOINT ["/engine"]
