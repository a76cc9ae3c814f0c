//! Layers, views, diff, apply, conflict and undo.
#![forbid(unsafe_code)]
