//! The commit protocol as a pure state machine: two-phase commit with presumed abort, for one world
//! with many participants. It must not know the store, a clock, or how a command is carried out.
//!
//! The algorithm is that of Mohan, Lindsay and Obermarck, "Transaction Management in the R*
//! Distributed Database Management System" (ACM TODS 11:4, 1986), presumed-abort variant: no
//! decision row means abort, so nothing needs to be forced to disk before the decision but the
//! participants' own staging. Validation before the vote is backward optimistic validation (Kung and
//! Robinson, 1981) against one target generation.
//!
//! A driver executes the commands it is given, in order, and feeds back one [`Event`] for each:
//! what it achieved, or [`Event::Failed`]. Answers may come late, twice, or never: what is late or
//! repeated is ignored, and [`Event::Timeout`] sends again what is unanswered. Every command can be
//! executed again, under the transaction's id, with the effect of one execution.

mod protocol;
mod types;

pub use protocol::Coordinator;
pub use types::*;
