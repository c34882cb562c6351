//! InPlace in a small world: one ExtendedStatefulSet, the StatefulSet controller of the model with its partitions, users, and an operator
//! that crashes between any two writes. Stories tell what people expect; walks look for what nobody thought of.

mod found;
mod laws;
mod operator;
mod refused;
mod stories;
mod users;
mod walks;
mod world;
mod zero;
mod zones;
