"""Automatic changes of the references that change nothing of what is promised, and why.

Reason -> exercise -> how many changes, and a pattern of what `mutants_of` says of them. The number is part of the list:
a change that passes the checks and matches a pattern by accident makes it wrong.
"""

EQUIVALENT: dict[str, dict[str, tuple[int, str]]] = {
    "softmax does not depend on the number that is subtracted, so no gradient goes through it": {
        "softmax": (1, r"largest = .*\.detach\(\)"),
    },
    "integers, truth values and positions have no gradient": {
        "last_valid_state": (1, r"\.detach\(\)"),
        "masked_cross_entropy": (3, r"(valid|positions|unsqueeze\(-1\)).*\.detach\(\)"),
        "greedy_decode": (7, r"\.detach\(\)"),
        "attention_weights": (3, r"(positions|padding|lengths).*\.detach\(\)"),
        "sinusoidal_encoding": (10, r"\.detach\(\)"),
        "apply_rotary": (8, r"(frequencies|angles|positions|arange|angles\.(cos|sin)\(\)).*\.detach\(\)"),
        "causal_mask": (4, r"\.detach\(\)"),
        "padding_mask": (2, r"\.detach\(\)"),
        "masked_softmax": (1, r"mask\.any.*\.detach\(\)"),
        "leaks_future": (8, r"\.detach\(\)"),
        "path_length": (3, r"\.detach\(\)"),
        "next_token_loss": (1, r"\.detach\(\)"),
        "route_top_k": (1, r"experts\[\.\.\., :k\]\.detach\(\)"),
        "decode_with_cache": (1, r"arange.*\.detach\(\)"),
    },
    "a row of positions is broadcast in the same way when it has one number and no dimension": {
        "masked_cross_entropy": (2, r"arange\(.*\)\.squeeze\("),
        "attention_weights": (2, r"arange\(.*\)\.squeeze\("),
        "sinusoidal_encoding": (4, r"(frequencies = .*|arange\(.*\))\.squeeze\("),
        "apply_rotary": (3, r"(frequencies = .*|arange\(.*\))\.squeeze\("),
        "causal_mask": (2, r"arange\(.*\)\.squeeze\("),
        "padding_mask": (2, r"arange\(.*\)\.squeeze\("),
    },
    "positions up to 16 million are exact in float32, and float64 stays float64": {
        "masked_cross_entropy": (2, r"arange\(.*\)\.(float|double)\(\)"),
        "attention_weights": (2, r"arange\(.*\)\.(float|double)\(\)"),
        "causal_mask": (4, r"arange\(.*\)\.(float|double)\(\)"),
        "padding_mask": (2, r"arange\(.*\)\.(float|double)\(\)"),
        "sinusoidal_encoding": (
            10,
            r"positions = |arange\(n_positions\) in|float64 → torch\.float32 in: positions"
            r"|\.double\(\) in|pairs = .*\.float\(\)|\.float\(\)\.float\(\)",
        ),
        "apply_rotary": (2, r"\.double\(\) in"),
        "decode_with_cache": (2, r"arange\(.*\)\.(float|double)\(\)"),
    },
    "two names for the same device, shape, dtype or number, as the docstring promises them equal": {
        "masked_cross_entropy": (2, r"targets → (logits|lengths) in: positions"),
        "greedy_decode": (4, r"tokens → (start_tokens|ended) in|-1 → 1 in: tokens = logits"),
        "attention_weights": (1, r"scores → lengths in: positions"),
        "scaled_dot_product_attention": (9, r"(queries|keys|values|wide) → \w+ in: (wide|d_k|outputs|return)"),
        "sinusoidal_encoding": (1, r"-1 → 1 in: angles"),
        "apply_rotary": (4, r"x → positions in: frequencies|-1 → 1 in: angles|x → (a|b) in: return"),
        "leaks_future": (2, r"inputs → (others|outputs) in: for t"),
        "path_length": (3, r"(-1 → 1|1 → 2) in: reached = torch\.arange|-1 → 1 in: reached = \(layer"),
        "decode_with_cache": (7, r"keys → \w+ in: (n_cached|positions)"),
    },
    "a guard's names: the guard refuses shapes that nobody promises to refuse": {
        "similarity_scores": (4, r"in: (leading, d_k|theirs) ="),
        "cross_attention": (3, r"(data → vectors|w_v → matrix) in"),
    },
    "a result without dimensions, or with none of size 1, has nothing to squeeze": {
        "masked_cross_entropy": (2, r"cross_entropy.*\.squeeze\("),
        "greedy_decode": (5, r"(ended\.all\(\)|zeros_like\(.*\))\.squeeze\(|nonzero\(\)"),
        "sinusoidal_encoding": (1, r"pairs = .*\.squeeze\(-1\)"),
        "apply_rotary": (1, r"\.squeeze\(-1\)"),
        "leaks_future": (4, r"\.squeeze\("),
        "path_length": (2, r"any\(dim=-1\)\.squeeze\("),
        "next_token_loss": (2, r"cross_entropy.*\.squeeze\("),
        "decode_with_cache": (3, r"\.squeeze\(-1\)"),
    },
    "an annotation": {
        "greedy_decode": (2, r"list\[.*\] → list in"),
        "beam_search": (4, r"in: ended: list"),
    },
    "zero stays zero": {
        "alignment_error_rate": (1, r"0\.0 \* 1\.001"),
    },
    "half precision may round each product; the angles stay exact": {
        "scaled_dot_product_attention": (2, r"→ (queries\.dtype|torch\.float16) in: wide"),
        "apply_rotary": (14, r"in: wide = |\.to\(wide\) → |wide → (x|frequencies|angles) in"),
    },
    "the NaN of an empty row is replaced at the end, and its gradient ends at the first masked_fill": {
        "masked_softmax": (6, r"in: scores = scores\.masked_fill\(~mask\.any"),
    },
    "more digits on the way are rounded off at the end": {
        "multi_head_attention": (1, r"\.double\(\) in: k = "),
        "scaled_dot_product_attention": (1, r"\.double\(\) in: outputs"),
    },
    "fork_rng gives every run the same random state, whatever the seed": {
        "leaks_future": (4, r"in: torch\.manual_seed\(seed\)|in: others = other_inputs"),
    },
    "without a GPU there is nothing more to restore": {
        "leaks_future": (1, r"fork_rng\(\) in"),
    },
    "both modes are tried, in the other order; t = 0 compares nothing": {
        "leaks_future": (2, r"\(True, False\) → \(False, True\)|1 → 0 in: for t"),
    },
    "a larger dtype, or another factor, keeps different outputs different": {
        "leaks_future": (3, r"\.double\(\) in|\* 1\.001 in"),
    },
    "models do not write into their inputs": {
        "leaks_future": (1, r"x\.clone\(\) → x in"),
    },
    "what is padded at the end is cut off": {
        "causal_conv1d": (1, r"0 → 1 in: padded"),
    },
    "both lists are equally long, as the docstring has them": {
        "receptive_field": (2, r"in: layers = zip"),
    },
    "an int stays an int": {
        "layer_flops": (2, r"→ int\("),
    },
    "a default of Python or PyTorch, written out": {
        "route_top_k": (1, r"logits\.sort\(descending=True"),
        "encode_bpe": (1, r"encode\(\) in"),
        "sample_next": (1, r"sort\(descending=True\) in"),
    },
    "numbers of Python and tokens have no gradient": {
        "shift_right": (2, r"\.detach\(\)"),
        "beam_search": (15, r"\.detach\(\)"),
    },
    "float32 stays float32, and sums in float64 are the same to seven digits": {
        "beam_search": (6, r"\.(float|double)\(\) in: (log_probs|totals|sums) ="),
    },
    "at the last step every sentence ends, so the loop ends too; a row has one token at least; one index is an int": {
        "beam_search": (
            6,
            r"1 → 2 in: for length|-1 → 1 in: log_probs|\.squeeze\(|\.flatten\(\) in: for row|beams → sums in: if",
        ),
    },
    "what is drawn has no gradient": {
        "sample_next": (10, r"\.detach\(\)"),
    },
    "three digits are enough to draw with": {
        "sample_next": (12, r"\.(float|double|half)\(\)"),
    },
    "the sum meets p exactly by rounding only": {
        "sample_next": (1, r"before <= top_p"),
    },
    "a reshape follows, or the leading dimensions are those of the logits": {
        "sample_next": (5, r"\.squeeze\((-1)?\) in: drawn|logits → \w+ in: return"),
    },
    "the projection keeps the leading dimensions": {
        "vit_logits": (1, r"x → patches in: first"),
    },
    "an identity matrix has no gradient and is square, as the weights are": {
        "attention_rollout": (6, r"in: itself = |in: rollout = itself"),
    },
    "a sum in another order, two names for the same number, an annotation, a list that is unpacked": {
        "online_softmax": (1, r"→ new_max in: return|logaddexp\(log_sum_exp_b|in: def tile|return \[q"),
        "merge_blocks": (1, r"→ new_max in: return|logaddexp\(log_sum_exp_b|in: def tile|return \[q"),
        "tiled_attention_backward": (3, r"→ new_max in: return|logaddexp\(log_sum_exp_b|in: def tile|return \[q"),
    },
    "no gradient through these functions is promised, and constants have none": {
        "online_softmax": (2, r"\.detach\(\)"),
        "tiled_attention": (28, r"\.detach\(\)"),
        "tiled_attention_backward": (27, r"\.detach\(\)"),
    },
    "where all is hidden, any finite number gives exp(-inf) = 0": {
        "online_softmax": (2, r"in: shift = |(inf → |masked_fill).*in: log_sums = |new_max → shift in"),
        "merge_blocks": (2, r"in: shift = |(inf → |masked_fill).*in: log_sums = |new_max → shift in"),
        "tiled_attention": (3, r"in: shift = |(inf → |masked_fill).*in: log_sums = |new_max → shift in"),
        "tiled_attention_backward": (4, r"in: shift = |(inf → |masked_fill).*in: log_sums = |new_max → shift in"),
    },
    "-inf and 0 at the start: in every shape and dtype, and far below every score": {
        "online_softmax": (1, r"in: (row_max = \w+\.new_f|row_sum = torch\.z|acc = q\.new|grad_[qkv] = torch\.z)"),
        "tiled_attention": (25, r"in: (row_max = \w+\.new_f|row_sum = torch\.z|acc = q\.new|grad_[qkv] = torch\.z)"),
        "tiled_attention_backward": (9, r"in: grad_[qkv] = torch\.z"),
    },
    "half precision may be rounded more, or less, often on the way": {
        "tiled_attention": (23, r"in: wide = |\.to\(|wide → |\.(float|double|half)\(\)"),
        "tiled_attention_backward": (45, r"in: wide = |\.to\(|wide → |\.(float|double|half)\(\)"),
    },
    "names for the same shape, dtype or device, as the docstring promises them": {
        "tiled_attention": (9, r"in: (visible|n_queries|scale|outputs|log_sum_exp|grads|grad_\w+)"),
        "tiled_attention_backward": (7, r"in: (visible|n_queries|scale|outputs|log_sum_exp|grads|grad_\w+)"),
    },
    "any cut into blocks gives the same, and a tile that is hidden whole adds nothing": {
        "tiled_attention": (4, r"block_[qk] → block_[kq] in|visible\.nothing|continue → nothing"),
        "tiled_attention_backward": (4, r"block_[qk] → block_[kq] in|visible\.nothing|continue → nothing"),
    },
    "a row that has seen nothing has sums of 0: divided by any number they are 0": {
        "tiled_attention": (1, r"1 → 2 in: sums = "),
    },
    "the gradients of the scores of a row sum to 0, so a constant added to keys adds nothing": {
        "tiled_attention_backward": (1, r"k \+ 0\.001"),
    },
    "the result is contiguous, and a row has one axis: two names of one number": {
        "softmax_kernel": (2, r"(→ tl\.max\(x\)|0 → -1) in"),
    },
    "float16 within its tolerance; the compiler, which is left out here, refuses the exponential of float16": {
        "softmax_kernel": (2, r"x\.to\(tl\.float32\)"),
    },
    "what counts as True masks every block, which is slower, not wrong": {
        "flash_forward_inner": (2, r"MASKED → "),
        "flash_dq_inner": (43, r"MASKED → "),
    },
    "a block of one dimension is broadcast as a row": {
        "flash_forward_inner": (1, r"\[None, :\] → "),
        "flash_dq_inner": (1, r"\[None, :\] → "),
    },
    "keys from `last` on are hidden from all queries": {
        "flash_forward_inner": (1, r"n_keys → last in"),
        "flash_dq_inner": (2, r"n_keys → last in"),
    },
    "all blocks that meet in a product have one dtype": {
        "flash_dq_inner": (3, r"keys → \w+ in: grad_queries"),
    },
}
