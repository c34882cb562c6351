//! A real Kubernetes control plane, kwok and Prometheus on loopback, as a library and a command.
