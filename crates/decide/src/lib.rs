//! Given what was seen and what time it is, what to do next. Pure and total.
