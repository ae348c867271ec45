// The calls of a process as changes of a disk, from what record_disk_calls.cpp has written.
#pragma once

#include <fcntl.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "support/disk_states.h"
#include "support/recorded_call.h"

namespace kindling {

class RecordedDisk {
 public:
  // `root` is the root folder, in which nothing was at the beginning.
  RecordedDisk(const std::string& bytes, const std::string& root) : root_(root) {
    for (std::size_t at = 0; at < bytes.size();) {
      RecordedCallHeader header;
      std::memcpy(&header, bytes.data() + at, sizeof header);
      at += sizeof header;
      const std::string text = bytes.substr(at, header.text_bytes);
      at += header.text_bytes;
      const std::string more = bytes.substr(at, header.more_bytes);
      at += header.more_bytes;
      add(header, text, more);
    }
  }

  std::vector<DiskEvent> events;

  // Files and folders have one kind of numbers; -1 is the root folder.
  int number_of(const std::string& path) const {
    const auto found = numbers_.find(path);
    return path.empty() ? kRootFolder : found == numbers_.end() ? kUnknown : found->second;
  }

 private:
  static constexpr int kUnknown = -2;

  void add(const RecordedCallHeader& header, const std::string& text, const std::string& more) {
    using Kind = DiskEvent::Kind;
    const int file = descriptors_.contains(header.descriptor) ? descriptors_[header.descriptor] : kUnknown;
    if (header.kind == 'o')
      descriptors_[header.descriptor] = opened(relative(text), static_cast<int>(header.number));
    if (header.kind == 'c') descriptors_.erase(header.descriptor);
    if (header.kind == 'm') add_name(Kind::make_folder, relative(text));
    if (header.kind == 'w' && file >= 0) events.push_back({.kind = Kind::write, .file = file, .bytes = text});
    if (header.kind == 't' && file >= 0)
      events.push_back(
          {.kind = Kind::truncate, .file = file, .size = static_cast<std::size_t>(header.number)});
    if (header.kind == 's' && file != kUnknown)
      events.push_back({.kind = is_folder(file) ? Kind::sync_folder : Kind::sync_file, .file = file});
    if (header.kind == 'u') remove_name(relative(text));
    if (header.kind == 'r') {
      const int moved = number_of(relative(text));
      add_name(Kind::name, relative(more), moved);
      remove_name(relative(text));
    }
  }

  int opened(const std::string& path, int flags) {
    int number = number_of(path);
    if ((flags & O_DIRECTORY) != 0 || (number == kUnknown && (flags & O_CREAT) == 0)) return number;
    if (number == kUnknown) return add_name(DiskEvent::Kind::name, path);
    if ((flags & O_TRUNC) != 0) events.push_back({.kind = DiskEvent::Kind::truncate, .file = number});
    return number;
  }

  int add_name(DiskEvent::Kind kind, const std::string& path, int number = kUnknown) {
    if (number == kUnknown) number = count_++;
    if (kind == DiskEvent::Kind::make_folder) folders_[number] = path;
    const std::size_t slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "" : path.substr(0, slash);
    events.push_back(
        {.kind = kind, .file = number, .name = path.substr(slash + 1), .folder = number_of(parent)});
    numbers_[path] = number;
    return number;
  }

  void remove_name(const std::string& path) {
    const int number = number_of(path);
    if (number == kUnknown) return;
    add_name(DiskEvent::Kind::unname, path, number);
    numbers_.erase(path);
  }

  bool is_folder(int number) const { return number == kRootFolder || folders_.contains(number); }
  std::string relative(const std::string& path) const {
    return path.size() <= root_.size() ? "" : path.substr(root_.size() + 1);
  }

  const std::string root_;
  std::map<std::string, int> numbers_;  // by path, now
  std::map<int, std::string> folders_;  // their first names
  std::map<int, int> descriptors_;
  int count_ = 0;
};

}  // namespace kindling
