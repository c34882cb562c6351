//! The native StatefulSet controller, pods, users and faults as a state machine over the shipped decide code.
