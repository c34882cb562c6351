//! Scenarios of the real operator against a real control plane and a real Prometheus.
