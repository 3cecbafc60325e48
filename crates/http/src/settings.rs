//! The settings that the two sides exchange (RFC 9113, section 6.5).

use crate::code::{Broken, Code};
use crate::frame::{HIGHEST, wrong_size};

pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const ENABLE_PUSH: u16 = 2;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const MAX_FRAME_SIZE: u16 = 5;
pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The size of a window before any settings.
pub(crate) const DEFAULT_WINDOW: u32 = 65535;

/// The peer's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerSettings {
    pub(crate) header_table_size: u32,
    pub(crate) max_concurrent_streams: u32,
    pub(crate) initial_window_size: u32,
    pub(crate) max_frame_size: u32,
    pub(crate) max_header_list_size: u32,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            header_table_size: 4096,
            max_concurrent_streams: u32::MAX,
            initial_window_size: DEFAULT_WINDOW,
            max_frame_size: 16384,
            max_header_list_size: u32::MAX,
        }
    }
}

impl PeerSettings {
    /// Applies the payload of a SETTINGS frame. If a setting occurs several times, its last value counts.
    pub(crate) fn update(&mut self, payload: &[u8], peer_is_client: bool) -> Result<(), Broken> {
        if !payload.len().is_multiple_of(6) {
            return Err(wrong_size());
        }
        let bad = |why| Err(Broken::new(Code::PROTOCOL_ERROR, why));
        for entry in payload.chunks_exact(6) {
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            match u16::from_be_bytes([entry[0], entry[1]]) {
                HEADER_TABLE_SIZE => self.header_table_size = value,
                ENABLE_PUSH if value > u32::from(peer_is_client) => return bad("ENABLE_PUSH has a wrong value"),
                MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
                INITIAL_WINDOW_SIZE if value > HIGHEST => {
                    return Err(Broken::new(Code::FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large"));
                }
                INITIAL_WINDOW_SIZE => self.initial_window_size = value,
                MAX_FRAME_SIZE if !(16384..1 << 24).contains(&value) => return bad("MAX_FRAME_SIZE has a wrong value"),
                MAX_FRAME_SIZE => self.max_frame_size = value,
                MAX_HEADER_LIST_SIZE => self.max_header_list_size = value,
                _ => {}
            }
        }
        Ok(())
    }
}
