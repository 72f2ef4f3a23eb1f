# One image for every process of Reverie: what a container does is its command (see docker-compose.yml).

FROM python:3.11-slim AS build
# Where to find a build of torch for the CPU. Without one, Linux gets several GB of CUDA packages.
ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/reverie
ENV PATH=/opt/reverie/bin:$PATH
WORKDIR /source
# The heavy part by itself: it changes once in a while, the code with every build.
COPY pyproject.toml README.md ./
COPY client/pyproject.toml client/
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; c = tomllib.load(open('client/pyproject.toml', 'rb'))['project']; print('\n'.join(d for d in p['dependencies'] + p['optional-dependencies']['monitoring'] + c['dependencies'] if not d.startswith('reverie-client')))" > requirements.txt \
    && pip install -r requirements.txt
COPY beat_schedule.py ./
COPY adapters adapters
COPY client client
COPY memory memory
COPY retrieval retrieval
COPY server server
COPY storage storage
COPY tasks tasks
COPY worker worker
RUN pip install --no-deps ./client .

FROM python:3.11-slim
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
