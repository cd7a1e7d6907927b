# syntax=docker/dockerfile:1
# The two images of mailmend. Both run without root, and with a root file system that is read-only.
#
#   docker build --target mailmend --tag mailmend .               without Java: everything but Spark
#   docker build --target mailmend-spark --tag mailmend-spark .   with Java 17 and PySpark: --engine spark too
#
#   docker run --rm --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
#       --volume /etc/mailmend:/etc/mailmend:ro --volume mailmend-state:/var/lib/mailmend \
#       --volume mailmend-cache:/var/cache/mailmend --env-file /etc/mailmend/environment mailmend check
#
# No secret is built in: passwords and keys come from files that are mounted, or from the environment.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS tools
ENV UV_LINK_MODE=copy \
    UV_NO_CACHE=1 \
    UV_PYTHON_DOWNLOADS=never
RUN pip install --no-cache-dir --disable-pip-version-check uv==0.13.9

FROM tools AS wheel-build
ARG SOURCE_DATE_EPOCH=315532800
WORKDIR /src
COPY . .
RUN uv build --quiet --wheel --out-dir /wheel

# A release builds the images from the wheel that it publishes: --build-context wheel=dist
FROM scratch AS wheel
COPY --from=wheel-build /wheel/*.whl /

# The packages of uv.lock, each with its checksum; only PySpark comes as a source archive.
FROM tools AS packages
WORKDIR /src
COPY pyproject.toml uv.lock ./
RUN uv venv --quiet /opt/mailmend \
    && uv export --quiet --frozen --no-dev --no-emit-project --output-file /tmp/requirements.txt \
        --extra cassandra --extra queue --extra pulsar --extra delivery --extra serve --extra staging --extra otel \
    && uv pip install --quiet --python /opt/mailmend --no-deps --require-hashes --compile-bytecode \
        --only-binary :all: --requirement /tmp/requirements.txt
COPY --from=wheel /*.whl /wheel/
RUN uv pip install --quiet --python /opt/mailmend --no-deps --compile-bytecode /wheel/mailmend-*.whl

FROM packages AS packages-spark
RUN uv export --quiet --frozen --no-dev --no-emit-project --output-file /tmp/requirements.txt \
        --extra cassandra --extra queue --extra pulsar --extra delivery --extra serve --extra staging --extra otel \
        --extra spark \
    && uv pip install --quiet --python /opt/mailmend --no-deps --require-hashes --compile-bytecode \
        --only-binary :all: --no-binary pyspark --requirement /tmp/requirements.txt

FROM ${PYTHON_IMAGE} AS runtime
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="mailmend" \
      org.opencontainers.image.description="Keeps denormalised mail data in Apache Cassandra true." \
      org.opencontainers.image.url="https://github.com/mailmend/mailmend" \
      org.opencontainers.image.source="https://github.com/mailmend/mailmend" \
      org.opencontainers.image.documentation="https://github.com/mailmend/mailmend/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The settings are /etc/mailmend/config.toml; what was removed is kept in /var/lib/mailmend; jars are in the cache.
ENV PATH=/opt/mailmend/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/var/lib/mailmend \
    XDG_CONFIG_HOME=/etc \
    XDG_DATA_HOME=/var/lib \
    XDG_CACHE_HOME=/var/cache \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
RUN groupadd --system --gid 10001 mailmend \
    && useradd --system --uid 10001 --gid mailmend --no-create-home --home-dir /var/lib/mailmend \
        --shell /usr/sbin/nologin mailmend \
    && install --directory --mode 0755 /etc/mailmend \
    && install --directory --owner mailmend --group mailmend --mode 0700 /var/lib/mailmend /var/cache/mailmend
USER 10001:10001
WORKDIR /var/lib/mailmend
VOLUME ["/var/lib/mailmend", "/var/cache/mailmend"]
ENTRYPOINT ["mailmend"]
CMD ["--help"]

FROM runtime AS mailmend-spark
LABEL org.opencontainers.image.title="mailmend-spark"
USER 0
# Debian's security updates count for Java: no version of it is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
USER 10001:10001
COPY --from=packages-spark /opt/mailmend /opt/mailmend

# The last target is the one that is built where none is named.
FROM runtime AS mailmend
COPY --from=packages /opt/mailmend /opt/mailmend
