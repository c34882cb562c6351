//! Prometheus: request, parsing and verdict, with one transport file.
