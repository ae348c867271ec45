#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace kindling {

// Which of the epochs 1 … `last` have no record.
class MissingEpochs {
 public:
  explicit MissingEpochs(std::int64_t last) : is_found_(static_cast<std::size_t>(last), false) {}

  void found(std::int64_t epoch);
  std::int64_t count() const;
  std::int64_t first() const;  // 0: none is missing

 private:
  std::vector<bool> is_found_;
};

// Warns of a file of records that was damaged or shortened while its run was stopped.
void report_damage(const std::filesystem::path& file, std::size_t num_damaged_lines,
                   const MissingEpochs& missing);

}  // namespace kindling
