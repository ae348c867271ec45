#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace kindling {

// For its lifetime, this thread's operators on CPU tensors of bfloat16 or float16 add up in float32 where
// LibTorch adds up in 16 bits, one number at a time: such a sum of equal numbers stops growing after 256 of
// them (float16: 2,048). These are the gradients of layer norm's weight and bias, of embeddings, of indexing
// and of overlapping windows; index_add, index_put and put that accumulate, index_reduce, fold, addbmm,
// histc; and, with 16-bit weights, recurrent layers, which add up over time. Results have the types that
// LibTorch's have. docs/guides/precision.md has the whole list, which the test WideSums checks.
//
// Operators that are replayed need no scope: a recording contains those that compute in float32.
class WideSums {
 public:
  explicit WideSums(bool is_on);
  WideSums(const WideSums&) = delete;
  WideSums& operator=(const WideSums&) = delete;

 private:
  std::optional<c10::impl::IncludeDispatchKeyGuard> listening_;
};

}  // namespace kindling
