//! The only unsafe code of Forkpoint: kernel interfaces behind safe functions.
