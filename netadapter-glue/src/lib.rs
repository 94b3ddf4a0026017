//! Ethernet edges that know nothing of RDMA.
#![no_std]
