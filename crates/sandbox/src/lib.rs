//! Namespaces, cgroups, limits and the life of a branch's processes.
#![forbid(unsafe_code)]
