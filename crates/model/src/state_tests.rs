//! Tests of the branch state machine.
use super::*;
