#pragma once

#include <functional>
#include <string>
#include <vector>

#include "formats/zip/zip_archive.h"
#include "support/torch_bytes.h"

// Files of torch.export.save, changed.
namespace kindling::pt2_bytes {

inline std::vector<torch_bytes::ZipPart> parts_of_archive(const std::string& bytes) {
  const ZipArchive archive(source_of_bytes(bytes), "x.pt2");
  std::vector<torch_bytes::ZipPart> parts;
  for (const ZipEntry& entry : archive.entries())
    parts.push_back({.name = entry.name, .bytes = archive.text(entry, entry.size)});
  return parts;
}

// With `from` in entries whose names end so replaced by `to`, wherever it is; throws where it is nowhere.
inline std::string replaced(const std::string& bytes, const std::string& entry, const std::string& from,
                            const std::string& to) {
  std::vector<torch_bytes::ZipPart> parts = parts_of_archive(bytes);
  std::size_t count = 0;
  for (torch_bytes::ZipPart& part : parts) {
    if (!part.name.ends_with(entry)) continue;
    for (std::size_t at = 0; (at = part.bytes.find(from, at)) != std::string::npos; at += to.size(), ++count)
      part.bytes.replace(at, from.size(), to);
    part.directory_size = part.bytes.size();
  }
  if (count == 0) throw std::runtime_error("there is no '" + from + "' in " + entry);
  return torch_bytes::zip_of(parts);
}

}  // namespace kindling::pt2_bytes
