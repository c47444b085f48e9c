# The planner with its REST service and pages, from its wheel alone:
#   docker build -t trainplan . && docker run --rm -p 8000:8000 trainplan
#   docker run --rm trainplan suggest gpt2 --gpus 4

FROM python:3.11-slim AS builder
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY planner planner
COPY data data
COPY api api
COPY web web
RUN python -m pip wheel --no-deps --wheel-dir /dist .
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --compile "$(echo /dist/trainplan-*.whl)[serve,telemetry]"
# Its OpenAPI description takes seconds to make: those who ask for it first do not wait.
RUN cd /opt/venv/lib/python3.11/site-packages/planner/apps \
    && PLANNER_CACHE_DIR=/opt/venv/share/planner /opt/venv/bin/python -c "import api.description as d; d.described()" \
    && chmod -R a+rX /opt/venv/share/planner

FROM python:3.11-slim
LABEL org.opencontainers.image.title="trainplan" \
      org.opencontainers.image.description="Plans how to train a Hugging Face model on several GPUs." \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --create-home planner
COPY --from=builder /opt/venv /opt/venv
USER 10001
WORKDIR /home/planner
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["planner"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
