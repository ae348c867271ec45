#pragma once

#include <ATen/core/Tensor.h>

namespace kindling {

// Copies from.index_select(0, rows) into `to`, which has its shape, both gapless and in host memory. `rows`:
// int64 [n]. Rows of some hundred bytes lie anywhere in memory: the next ones are asked for while one is
// copied, which the operator does not do. Throws DataError for a row that is not there.
void gather_rows(const at::Tensor& from, const at::Tensor& rows, const at::Tensor& to);

}  // namespace kindling
