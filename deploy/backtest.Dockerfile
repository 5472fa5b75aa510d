# make backtest-image: the operator's image with the extra `backtest`, for `servingpool backtest --as-job`.
# BASE and PIP_OPTIONS as in Dockerfile; BASE is the one that OPERATOR was built on.
ARG BASE=python:3.11-slim
ARG OPERATOR=servingpool-operator

FROM ${OPERATOR} AS operator

FROM ${BASE} AS build
WORKDIR /src
ARG PIP_OPTIONS=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_FIND_LINKS=/src/wheels
COPY tools/locks/backtest.lock tools/locks/build.lock build/wheel[s] wheels/
COPY --from=operator /opt/servingpool /opt/servingpool
RUN touch /before && python3 -m venv /build \
    && /build/bin/pip install --quiet ${PIP_OPTIONS} --require-hashes --requirement wheels/build.lock \
    && /build/bin/pip --python /opt/servingpool/bin/python3 install --quiet --no-compile ${PIP_OPTIONS} \
        --only-binary :all: --require-hashes --requirement wheels/backtest.lock
# Both have the operator's version.
COPY operator/servingpool/__init__.py operator/servingpool/
COPY packages/simulation packages/simulation
COPY packages/backtest packages/backtest
# Compiled here, for the file system is read-only there. Only what is new goes into the image.
RUN /build/bin/pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist ./packages/simulation ./packages/backtest \
    && /build/bin/pip --python /opt/servingpool/bin/python3 install --quiet --no-compile --no-deps --no-index dist/*.whl \
    && find /opt/servingpool -name '*.py' -cnewer /before > /new \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -i /new \
    && mkdir /image && find /opt/servingpool -type f -cnewer /before -print0 \
        | tar --create --null --files-from - | tar --extract --directory /image

FROM ${OPERATOR}
COPY --from=build /image /
LABEL org.opencontainers.image.title=servingpool-backtest
