//! Job handles.

use crate::wire::{HANDLE_BYTES_MAX, HANDLE_PREFIX_BYTES_MAX, HandlePrefix, HandlePrefixError};

#[test]
fn only_the_canonical_form_is_a_handle() {
    let cases: &[(&str, &[u8], Option<u64>)] = &[
        ("specification's example", b"H:lap:1", Some(1)),
        ("zero", b"H:lap:0", Some(0)),
        ("large", b"H:lap:18446744073709551615", Some(u64::MAX)),
        ("too large", b"H:lap:18446744073709551616", None),
        ("much too large", b"H:lap:99999999999999999999999999", None),
        ("nul behind it", b"H:lap:1\0", Some(1)),
        ("two nuls behind it", b"H:lap:1\0\0", None),
        ("nul inside", b"H:lap:1\x001", None),
        ("leading zero", b"H:lap:01", None),
        ("two zeros", b"H:lap:00", None),
        ("plus", b"H:lap:+1", None),
        ("minus", b"H:lap:-1", None),
        ("blank", b"H:lap: 1", None),
        ("blank behind it", b"H:lap:1 ", None),
        ("letters", b"H:lap:1a", None),
        ("no number", b"H:lap:", None),
        ("no colon", b"H:lap1", None),
        ("prefix only", b"H:lap", None),
        ("another machine", b"H:top:1", None),
        ("other case", b"h:lap:1", None),
        ("empty", b"", None),
        ("nul", b"\0", None),
    ];
    let prefix = HandlePrefix::new(b"H:lap").unwrap();
    for (name, handle, number) in cases {
        assert_eq!(prefix.parse(handle), *number, "{name}");
    }
}

#[test]
fn the_largest_handle_fits() {
    let prefix = HandlePrefix::new(&[b'p'; HANDLE_PREFIX_BYTES_MAX]).unwrap();
    for number in [
        0,
        1,
        9,
        10,
        99,
        100,
        u64::from(u32::MAX),
        u64::MAX - 1,
        u64::MAX,
    ] {
        let handle = prefix.handle(number);
        assert_eq!(
            handle.to_string(),
            format!("{}:{number}", "p".repeat(HANDLE_PREFIX_BYTES_MAX))
        );
        assert_eq!(prefix.parse(&handle), Some(number));
    }
    assert_eq!(prefix.handle(u64::MAX).len(), HANDLE_BYTES_MAX);
}

#[test]
fn a_prefix_that_would_break_handles_is_refused() {
    let refused = |text: &str| Err(HandlePrefixError(text.to_owned()));
    let unprintable = |offset: usize, byte: u8| {
        refused(&format!(
            "byte {byte:#04x} at offset {offset} of the handle prefix"
        ))
    };
    let cases: &[(&str, &[u8], Result<(), HandlePrefixError>)] = &[
        ("usual", b"H:host.example.org", Ok(())),
        ("bytes beyond ascii", b"H:\xc3\xa4", Ok(())),
        ("longest", &[b'p'; 42], Ok(())),
        (
            "too long",
            &[b'p'; 43],
            refused("handle prefix of 43 bytes, 42 allowed"),
        ),
        ("empty", b"", refused("handle prefix is empty")),
        ("nul", b"H:a\0b", unprintable(3, 0)),
        ("blank", b"H: a", unprintable(2, b' ')),
        ("line feed", b"H:a\n", unprintable(3, b'\n')),
        ("delete", b"\x7f", unprintable(0, 0x7f)),
    ];
    for (name, prefix, result) in cases {
        assert_eq!(HandlePrefix::new(prefix).map(|_| ()), *result, "{name}");
    }
}
