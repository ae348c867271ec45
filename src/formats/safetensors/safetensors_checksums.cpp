#include "formats/safetensors/safetensors_checksums.h"

#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_damage(const std::string& place, const std::string& found,
                                const std::string& wanted) {
  throw CheckpointError({.place = place,
                         .found = found,
                         .wanted = wanted,
                         .remedy = "the file is damaged: copy it again, or use an earlier one"});
}

std::string_view written_checksum(std::string_view header) {
  return header.substr(kCheckedHeaderStart.size(), kChecksumDigits);
}

}  // namespace

std::string checksum_of_header(std::string_view header) {
  Checksum checksum;
  checksum.update(kCheckedHeaderStart);
  checksum.update(std::string(kChecksumDigits, '0'));
  checksum.update(header.substr(kCheckedHeaderStart.size() + kChecksumDigits));
  return checksum.hex();
}

void check_header(std::string_view header, const std::string& place) {
  if (!header.starts_with(kCheckedHeaderStart) ||
      header.size() < kCheckedHeaderStart.size() + kChecksumDigits)
    return;
  const std::string found = checksum_of_header(header);
  if (found != written_checksum(header))
    refuse_damage(place + ", header", "its checksum is " + found,
                  json_string(written_checksum(header)) + ", as recorded in it");
}

void take_checksums(std::string_view header, SafetensorsIndex& index, const std::string& place) {
  const auto of_header = index.metadata.extract(std::string(kHeaderChecksumKey));
  const auto of_tensors = index.metadata.extract(std::string(kTensorChecksumsKey));
  if (of_header.empty() && of_tensors.empty()) return;
  const std::size_t digits = of_tensors.empty() ? 0 : of_tensors.mapped().size();
  if (of_header.empty() || of_tensors.empty() || !header.starts_with(kCheckedHeaderStart) ||
      digits != kChecksumDigits * index.tensors.size())
    refuse_damage(place + ", header", "its checksums are incomplete",
                  "the header's checksum first in the metadata, and one for each tensor");
  index.has_checksums = true;
  for (std::size_t i = 0; i < index.tensors.size(); ++i)
    index.tensors[i].checksum = of_tensors.mapped().substr(kChecksumDigits * i, kChecksumDigits);
}

void check_values(const TensorEntry& entry, const Checksum& checksum, const std::string& place) {
  if (entry.checksum.empty() || checksum.hex() == entry.checksum) return;
  refuse_damage(place + ", tensor " + json_string(entry.name.substr(0, 100)),
                "its values have the checksum " + checksum.hex(),
                json_string(entry.checksum) + ", as recorded in the header");
}

}  // namespace kindling
