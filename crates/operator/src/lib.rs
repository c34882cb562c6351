//! The running operator: reads, decides, writes.
