"""Answer reviews over HTTP: connections, requests, fair shares of callers, metrics, and the recorder."""
