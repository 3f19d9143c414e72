"""Running Ister: alerts, dashboard, container, compose, Kubernetes, systemd; and their tests."""
