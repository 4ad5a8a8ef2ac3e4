"""Wrong answers to lesson 15's exercises; each says what is wrong with it."""

from course_utils.lessons.flash_triton import add_kernel, flash_dq_inner, flash_forward_inner, softmax_kernel
from tests.answers.kernels import rewritten
from tests.answers.right.flash_triton import (
    ADD,
    BY_HAND,
    HIDE,
    LOAD,
    LOAD_KEYS,
    LOOP,
    PLACES,
    POWERS,
    ROW,
    SCORES,
    SHIFT,
    VISIBLE,
    WEIGHTS,
)

# ---- add_kernel


add_kernel__product = rewritten(add_kernel, {"x + y": "x * y"}, "Multiplies instead of adding.")
add_kernel__no_masks = rewritten(
    add_kernel,
    {
        "x_ptr + places, mask=inside": "x_ptr + places",
        "y_ptr + places, mask=inside": "y_ptr + places",
        "x + y, mask=inside": "x + y",
    },
    "No mask at all.",
)
add_kernel__mask_of_the_block = rewritten(
    add_kernel, {"places < n": "tl.arange(0, BLOCK) < n"}, "The mask looks at places in the block, not in the vector."
)
add_kernel__second_block_first = rewritten(
    add_kernel,
    {"tl.program_id(0) * BLOCK": "(tl.program_id(0) + 1) * BLOCK"},
    "Every program does the block after its own.",
)
add_kernel__written_to_x = rewritten(add_kernel, {"out_ptr + places": "x_ptr + places"}, "Overwrites x.")
add_kernel__first_number_of_y = rewritten(
    add_kernel, {"y_ptr + places, mask=inside": "y_ptr"}, "Adds the first number of y to all of x."
)
add_kernel__half_a_block = rewritten(
    add_kernel,
    {PLACES: "tl.program_id(0) * BLOCK + tl.arange(0, BLOCK // 2)"},
    "Leaves out the second half of each block.",
)
add_kernel__only_the_tail = rewritten(add_kernel, {"places < n": "places >= n"}, "The mask upside down.")
add_kernel__not_stored = rewritten(add_kernel, {ADD: "x + y"}, "The sum is never stored.")
add_kernel__next_number = rewritten(
    add_kernel, {"y_ptr + places": "y_ptr + places + 1"}, "y is read one place too far on."
)

# ---- softmax_kernel

softmax_kernel__log_softmax = rewritten(
    softmax_kernel, {"powers / tl.sum(powers)": "tl.log(powers / tl.sum(powers))"}, "The logarithm of a softmax."
)
softmax_kernel__minus_the_minimum = rewritten(softmax_kernel, {"tl.max(": "tl.min("}, "Subtracts the smallest number.")
softmax_kernel__zeros_and_no_maximum = rewritten(
    softmax_kernel,
    {LOAD: LOAD.replace('-float("inf")', "0.0"), POWERS: "tl.exp(x)"},
    "Zeros behind the row, and no maximum.",
)
softmax_kernel__divided_by_n = rewritten(softmax_kernel, {"tl.sum(powers)": "n"}, "Divides by the number of columns.")
softmax_kernel__divided_by_the_largest = rewritten(
    softmax_kernel, {"tl.sum(powers)": "tl.max(powers, axis=0)"}, "Divides by the largest power, not by the sum."
)
softmax_kernel__rows_by_block = rewritten(
    softmax_kernel, {"row * x_stride": "row * BLOCK"}, "Row i is taken to begin at i * BLOCK."
)
softmax_kernel__result_rows_by_n_and_one = rewritten(
    softmax_kernel, {"row * out_stride": "row * (out_stride + 1)"}, "The rows of the result drift to the right."
)
softmax_kernel__one_row_too_far = rewritten(
    softmax_kernel, {ROW: f"{ROW} + 1"}, "Every program does the row after its own."
)
softmax_kernel__a_late_cast = rewritten(
    softmax_kernel,
    {ROW: "tl.program_id(0)", "row * x_stride": "tl.cast(row * x_stride, tl.int64)"},
    "Casts to 64 bits after the product has overflowed.",
)
softmax_kernel__sigmoid = rewritten(softmax_kernel, {"tl.sum(powers)": "(1 + powers)"}, "Each number on its own.")

softmax_kernel__result_in_32_bits = rewritten(
    softmax_kernel,
    {ROW: "tl.program_id(0)", "row * x_stride": "tl.cast(row, tl.int64) * x_stride"},
    "The rows of the result are not found where their offsets need 64 bits.",
)
softmax_kernel__minus_ten_thousand = rewritten(
    softmax_kernel, {'other=-float("inf")': "other=-1e4"}, "Behind the row stands -10,000, and a row may be lower."
)
softmax_kernel__zeros_hidden_late = rewritten(
    softmax_kernel,
    {LOAD: LOAD.replace('-float("inf")', "0.0"), POWERS: f"{POWERS} * inside"},
    "The zeros behind the row are hidden after the exponential, when the maximum has seen them.",
)

# ---- flash_forward_inner

flash_forward_inner__plain_softmax_of_the_block = rewritten(
    flash_forward_inner,
    {
        "tl.maximum(row_max, tl.max(scores, axis=1))": "tl.max(scores, axis=1)",
        "row_sum * rescale + ": "",
        "acc * rescale[:, None]": "acc * 0.0",
    },
    "Only the last block counts.",
)
flash_forward_inner__no_rescaling_at_all = rewritten(
    flash_forward_inner,
    {"row_sum * rescale": "row_sum", "acc * rescale[:, None]": "acc"},
    "Neither the sum nor the accumulator is rescaled.",
)
flash_forward_inner__rescaled_after_adding = rewritten(
    flash_forward_inner,
    {"row_sum * rescale + tl.sum(weights, axis=1)": "(row_sum + tl.sum(weights, axis=1)) * rescale"},
    "The new weights are rescaled too.",
)
flash_forward_inner__large_negative_number = rewritten(
    flash_forward_inner,
    {HIDE: "scores = tl.where(visible, scores, -200.0)"},
    "Hides with -200, where scores may be -400.",
)
flash_forward_inner__mask_upside_down = rewritten(
    flash_forward_inner, {HIDE: 'scores = tl.where(visible, -float("inf"), scores)'}, "Hides what is visible."
)
flash_forward_inner__hides_too_much = rewritten(
    flash_forward_inner, {VISIBLE: VISIBLE.replace(" < ", " + 1 < ")}, "The last visible key of each query is hidden."
)
flash_forward_inner__only_the_tail = rewritten(
    flash_forward_inner, {"< n_visible[:, None]": "< n_keys"}, "Masks the tail, but not the future."
)
flash_forward_inner__mask_from_the_block = rewritten(
    flash_forward_inner, {"visible = start + ": "visible = "}, "The mask counts the keys from the start of each block."
)
flash_forward_inner__keys_twice = rewritten(
    flash_forward_inner, {"load_rows(v, ": "load_rows(k, "}, "Sums keys instead of values."
)
flash_forward_inner__never_advances = rewritten(
    flash_forward_inner, {LOAD_KEYS: LOAD_KEYS.replace("start", "first")}, "Every step loads the first block of keys."
)
flash_forward_inner__wraps = rewritten(
    flash_forward_inner,
    {LOAD_KEYS: BY_HAND.replace("places.to(tl.int64) * row_stride", "(places * row_stride).to(tl.int64)")},
    "Casts to 64 bits after the product has overflowed.",
)
flash_forward_inner__nan_to_one = rewritten(flash_forward_inner, {SHIFT: "new_max"}, "-inf minus -inf.")
flash_forward_inner__divided = rewritten(
    flash_forward_inner,
    {"row_max = new_max": "row_max = new_max\n        acc = acc / row_sum[:, None]"},
    "Divides in every step.",
)

flash_forward_inner__product_in_half = rewritten(
    flash_forward_inner,
    {"dot(weights.to(values.dtype), values)": "dot(weights.to(values.dtype), values).to(values.dtype)"},
    "The product of each block is rounded to the dtype of the values.",
)
flash_forward_inner__accumulator_in_half = rewritten(
    flash_forward_inner,
    {"row_max = new_max": "row_max = new_max\n        acc = acc.to(values.dtype).to(tl.float32)"},
    "The accumulator is rounded to the dtype of the values after each block.",
)
flash_forward_inner__reads_the_tail = rewritten(
    flash_forward_inner,
    {
        "k, start, n_keys, BLOCK_K, D, MASKED": "k, start, n_keys, BLOCK_K, D, False",
        "v, start, n_keys, BLOCK_K, D, MASKED": "v, start, n_keys, BLOCK_K, D, False",
    },
    "Reads keys and values behind the last one.",
)

# ---- flash_dq_inner

flash_dq_inner__delta_added = rewritten(flash_dq_inner, {"- delta": "+ delta"}, "Adds delta.")
flash_dq_inner__no_delta_and_no_scale = rewritten(
    flash_dq_inner, {" - delta[:, None]": "", " * log2_scale": ""}, "Neither delta nor the scale."
)
flash_dq_inner__scaled_twice = rewritten(
    flash_dq_inner,
    {SCORES: f"log2_scale * {SCORES}"},
    "The scale is multiplied into the gradient, where the kernel does it.",
)
flash_dq_inner__natural = rewritten(
    flash_dq_inner, {WEIGHTS: "weights = tl.exp((scores - log_sum_exp[:, None]))"}, "Powers of e of scores to base 2."
)
flash_dq_inner__one_row = rewritten(
    flash_dq_inner, {"delta[:, None]": "tl.max(delta, axis=0)"}, "One delta for all queries."
)
flash_dq_inner__hides_too_much = rewritten(
    flash_dq_inner, {VISIBLE: VISIBLE.replace(" < ", " + 1 < ")}, "The last visible key of each query is hidden."
)
flash_dq_inner__mask_from_the_block = rewritten(
    flash_dq_inner, {"visible = start + ": "visible = "}, "The mask counts the keys from the start of each block."
)
flash_dq_inner__keys_for_values = rewritten(
    flash_dq_inner, {"tl.trans(values)": "tl.trans(keys)"}, "The gradient of the weights from the keys."
)
flash_dq_inner__without_weights = rewritten(flash_dq_inner, {SCORES: "grad_weights - delta[:, None]"}, "No weights.")
flash_dq_inner__subtracted = rewritten(flash_dq_inner, {"grad_queries += ": "grad_queries -= "}, "The wrong sign.")
flash_dq_inner__twice_the_first_block = rewritten(
    flash_dq_inner,
    {LOOP: LOOP, LOAD_KEYS: LOAD_KEYS.replace("start", "first")},
    "Every step loads the first block of keys.",
)
flash_dq_inner__product_in_half = rewritten(
    flash_dq_inner,
    {"dot(grad_scores.to(keys.dtype), keys)": "dot(grad_scores.to(keys.dtype), keys).to(keys.dtype)"},
    "The product of each block is rounded to the dtype of the keys.",
)
flash_dq_inner__sum_in_half = rewritten(
    flash_dq_inner,
    {"keys.dtype), keys)": "keys.dtype), keys)\n        grad_queries = grad_queries.to(keys.dtype).to(tl.float32)"},
    "The sum is rounded to the dtype of the keys after each block.",
)
flash_dq_inner__reads_the_tail = rewritten(
    flash_dq_inner,
    {
        "k, start, n_keys, BLOCK_K, D, MASKED": "k, start, n_keys, BLOCK_K, D, False",
        "v, start, n_keys, BLOCK_K, D, MASKED": "v, start, n_keys, BLOCK_K, D, False",
    },
    "Reads keys and values behind the last one.",
)
