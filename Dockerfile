# The REST service and the pages: the installed wheel, with api/ and web/ beside it.
#   docker build -t planner . && docker run --rm -p 8000:8000 planner

FROM python:3.11-slim AS builder
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY planner planner
COPY data data
RUN python -m pip wheel --no-deps --wheel-dir /dist .
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir "$(echo /dist/planner-*.whl)[serve]"

FROM python:3.11-slim
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --create-home planner
COPY --from=builder /opt/venv /opt/venv
WORKDIR /app
COPY api api
COPY web web
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["uvicorn", "api.main:app", "--host", "0.0.0.0", "--port", "8000", "--http", "api.connections:Connection", \
     "--timeout-graceful-shutdown", "8", "--limit-concurrency", "1000", "--backlog", "256", "--timeout-keep-alive", "5"]
