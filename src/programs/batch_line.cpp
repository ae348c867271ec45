#include "programs/batch_line.h"

namespace kindling {

std::optional<BatchLine> line_through(const std::vector<std::int64_t>& numbers,
                                      const std::vector<std::int64_t>& batch_sizes) {
  const std::int64_t step = batch_sizes[1] - batch_sizes[0], rise = numbers[1] - numbers[0];
  BatchLine line{0, numbers[0]};
  if (step != 0 && rise % step == 0) line = {rise / step, numbers[0] - rise / step * batch_sizes[0]};
  for (std::size_t i = 0; i < batch_sizes.size(); ++i)
    if (line.a * batch_sizes[i] + line.b != numbers[i]) return std::nullopt;
  return line;
}

std::string expression_of(BatchLine line) {
  std::string text = std::string("Symbol('") + kBatchSymbol + "', positive=True, integer=True)";
  if (line.a != 1) text = "Mul(Integer(" + std::to_string(line.a) + "), " + text + ")";
  if (line.b != 0) text = "Add(" + text + ", Integer(" + std::to_string(line.b) + "))";
  return text;
}

}  // namespace kindling
