# One image for all processes of Reverie; the command decides which one a container runs (see docker-compose.yml).

# A tag can be given to another image. To build from one image and no other, name its digest:
# --build-arg PYTHON_IMAGE=python@sha256:...
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# An index with CPU builds of torch. Without it, Linux gets several GB of CUDA packages.
ARG PIP_EXTRA_INDEX_URL=""
# Optional dependencies, as in pyproject.toml: "local,monitoring,multilingual" adds the multilingual embedding model.
ARG EXTRAS="local,monitoring"
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/reverie
ENV PATH=/opt/reverie/bin:$PATH
WORKDIR /source
# First the locked packages: pip refuses a file whose hash is not in the list. What is left for the second step is torch,
# whose build depends on the index, and the optional packages of EXTRAS.
COPY requirements.lock ./
RUN --mount=type=cache,target=/root/.cache/pip pip install --require-hashes --no-deps -r requirements.lock
COPY pyproject.toml README.md beat_schedule.py ./
COPY adapters adapters
COPY client client
COPY memory memory
COPY retrieval retrieval
COPY server server
COPY storage storage
COPY tasks tasks
COPY cli cli
COPY worker worker
# The cache belongs to the builder: it saves the next build the downloads and is not part of the image.
RUN --mount=type=cache,target=/root/.cache/pip pip install ".[${EXTRAS}]"

FROM ${PYTHON_IMAGE}
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin reverie \
    && install -d -o reverie -g reverie -m 0700 /data
COPY --from=build /opt/reverie /opt/reverie
ENV PATH=/opt/reverie/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    REVERIE_DATA=/data \
    REVERIE_LOG_FORMAT=json \
    HF_HOME=/data/models
USER reverie
WORKDIR /home/reverie
VOLUME /data
CMD ["reverie", "--help"]
