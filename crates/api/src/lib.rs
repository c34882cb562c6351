//! What users write: the sts.plus types, conditions, reasons and names. No IO.
