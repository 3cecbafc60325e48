//! Texts of Python, and the names of its types.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::trouble::{Result, Trouble};

/// The text of some bytes, which must be UTF-8. Python checks and copies them in one step.
#[inline]
pub(super) fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Result<Bound<'py, PyAny>> {
    // SAFETY: attached; the pointer and the length are those of a slice, which Python copies.
    let made = unsafe { ffi::PyUnicode_DecodeUTF8(bytes.as_ptr().cast(), bytes.len() as isize, std::ptr::null()) };
    // SAFETY: an owned reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }.map_err(|_| Trouble::misfit("a str is not valid UTF-8"))
}

/// A text as UTF-8. A lone surrogate is an error.
#[inline]
pub(super) fn utf8<'a>(text: &'a Bound<'_, PyString>) -> Result<&'a str> {
    text.to_str().map_err(|_| Trouble::misfit("a str holds a lone surrogate, which UTF-8 cannot carry"))
}

/// The name of a value's type, for error messages.
#[cold]
pub(super) fn type_name(value: &Bound<'_, PyAny>) -> String {
    if value.is_none() {
        return "None".to_owned();
    }
    let kind = value.get_type();
    let (name, module) = (kind.qualname(), kind.module());
    match (name, module) {
        (Ok(name), Ok(module)) => match module.to_str() {
            Ok("builtins" | "__main__") | Err(_) => name.to_string(),
            Ok(module) => format!("{}.{name}", module.split('.').next().unwrap_or(module)),
        },
        _ => "an object".to_owned(),
    }
}
