//! Names of methods that std and libraries have, too: they tell no type.

/// Sorted.
#[rustfmt::skip]
const NAMES: [&str; 361] = [
    "abs", "abs_diff", "add", "all", "and", "and_modify", "and_then", "any", "append", "arg", "args", "as_array",
    "as_array_mut", "as_bytes", "as_deref", "as_deref_mut", "as_f64", "as_i64", "as_millis", "as_mut", "as_mut_slice",
    "as_nanos", "as_object", "as_os_str", "as_path", "as_ptr", "as_ref", "as_secs", "as_secs_f64", "as_slice",
    "as_str", "as_table", "as_u64", "binary_search", "binary_search_by", "binary_search_by_key", "bits", "borrow",
    "borrow_mut", "by_ref", "bytes", "capacity", "captures", "ceil", "chain", "chars", "checked_add", "checked_div",
    "checked_mul", "checked_rem", "checked_sub", "chunk_by", "chunks", "chunks_exact", "clear", "clone", "cloned",
    "cmp", "code", "collect", "concat", "contains", "contains_key", "context", "copied", "copy_from_slice", "count",
    "count_ones", "count_zeros", "create", "cycle", "dedup", "dedup_by_key", "default", "description", "display",
    "div_ceil", "drain", "drop", "duration_since", "elapsed", "end", "ends_with", "entry", "enumerate", "env", "eq",
    "err", "exists", "exp", "expect", "extend", "extend_from_slice", "extension", "file_name", "fill", "filter",
    "filter_map", "find", "find_map", "first", "first_key_value", "first_mut", "flat_map", "flatten", "flush", "fmt",
    "fold", "for_each", "from", "from_str", "ge", "get", "get_key_value", "get_mut", "get_or_insert",
    "get_or_insert_with", "gt", "hash", "id", "index", "insert", "inspect", "intersection", "into", "into_boxed_str",
    "into_bytes", "into_inner", "into_iter", "into_keys", "into_path", "into_string", "into_values", "is_alphabetic",
    "is_alphanumeric", "is_ascii", "is_dir", "is_empty", "is_err", "is_err_and", "is_file", "is_finite", "is_match",
    "is_nan", "is_negative", "is_none", "is_none_or", "is_ok", "is_ok_and", "is_positive", "is_power_of_two",
    "is_some", "is_some_and", "is_subset", "iter", "iter_mut", "join", "keys", "kill", "kind", "last",
    "last_key_value", "last_mut", "le", "leading_zeros", "len", "lines", "ln", "load", "lock", "log10", "log2", "lt",
    "map", "map_err", "map_or", "map_or_else", "map_while", "match_indices", "max", "max_by", "max_by_key", "message",
    "metadata", "min", "min_by", "min_by_key", "mul", "name", "ne", "neg", "new", "next", "next_back",
    "next_multiple_of", "next_power_of_two", "not", "nth", "ok", "ok_or", "ok_or_else", "open", "or", "or_default",
    "or_else", "or_insert", "or_insert_with", "output", "parent", "parse", "partial_cmp", "partition",
    "partition_point", "path", "peek", "peekable", "pid", "poll", "pop", "pop_back", "pop_first", "pop_front",
    "pop_last", "position", "pow", "powf", "powi", "product", "push", "push_back", "push_front", "push_str", "range",
    "range_mut", "read", "read_dir", "read_exact", "read_line", "read_to_end", "read_to_string", "recv", "rem",
    "rem_euclid", "remove", "repeat", "replace", "reserve", "resize", "retain", "rev", "reverse", "rfind",
    "rotate_left", "rotate_right", "round", "rposition", "rsplit", "rsplit_once", "rsplitn", "saturating_add",
    "saturating_mul", "saturating_pow", "saturating_sub", "scan", "seek", "send", "set", "shl", "shr", "signum",
    "sin", "size", "size_hint", "skip", "skip_while", "sort", "sort_by", "sort_by_key", "sort_unstable",
    "sort_unstable_by", "sort_unstable_by_key", "source", "span", "spawn", "splice", "split", "split_at",
    "split_at_mut", "split_first", "split_first_mut", "split_last", "split_off", "split_once", "split_whitespace",
    "sqrt", "start", "starts_with", "status", "step_by", "store", "strip_prefix", "strip_suffix", "sub", "sum",
    "swap", "swap_remove", "take", "take_while", "then", "then_some", "to_bits", "to_le_bytes", "to_lowercase",
    "to_owned", "to_path_buf", "to_str", "to_string", "to_string_lossy", "to_uppercase", "to_vec", "total_cmp",
    "trailing_zeros", "transpose", "trim", "trim_end", "trim_end_matches", "trim_matches", "trim_start",
    "trim_start_matches", "trunc", "truncate", "try_fold", "try_for_each", "try_from", "try_get_matches", "try_into",
    "try_wait", "union", "unwrap", "unwrap_err", "unwrap_or", "unwrap_or_default", "unwrap_or_else", "unzip",
    "update", "values", "values_mut", "visit", "wait", "windows", "with", "with_capacity", "with_context",
    "wrapping_add", "wrapping_mul", "wrapping_sub", "write", "write_all", "write_fmt", "write_str", "zip",
];

pub(super) fn has(name: &str) -> bool {
    NAMES.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(NAMES.is_sorted() && has("len") && has("next") && !has("split_pmd_across"));
    }
}
