//! Building guests.
