#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/protobuf_writer.h"
#include "kindling/base/export.h"

namespace kindling {

class FileDescriptor;

// Numbers of fields in TensorBoard's event.proto and summary.proto.
struct EventField {
  static constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7,
                       source_metadata = 10;
};
struct SummaryValueField {
  static constexpr int tag = 1, simple_value = 2, tensor = 8, metadata = 9;
};

// The tag of the event that ends a session of hyper-parameters.
inline constexpr std::string_view kSessionEndTag = "_hparams_/session_end_info";

// Returns the seconds since 1970.
double system_seconds();

// A file of TensorBoard's events in TFRecord's frames: the length, its checksum, the event, its checksum.
class EventFile {
 public:
  // Creates events.out.tfevents.SECONDS.HOST.PID.N, a name that does not exist yet, and writes the version
  // and the start of a session at `first_step`, which tells viewers to drop later points. `clock` returns the
  // wall time in seconds; an event is never earlier than the one before it, even if the clock is set back.
  // Throws Error.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step,
            std::function<double()> clock = system_seconds);
  ~EventFile();  // writes what is buffered; ignores errors

  // Adds the time to the event and buffers it for at most two seconds.
  void append(ProtobufWriter event);
  // Writes to the system. If it throws, the file ends with a whole event, and what could not be written is
  // written with the next event. A file that has been removed is written again in full, which is logged.
  void flush();
  void sync();  // flushes, and survives a power loss

 private:
  void restore();

  std::filesystem::path path_;
  std::function<double()> clock_;
  double time_ = 0;  // of the latest event
  std::shared_ptr<const FileDescriptor> file_;
  std::string buffer_;
  std::chrono::steady_clock::time_point flushed_ = std::chrono::steady_clock::now();
  bool has_durable_name_ = false;
};

// Returns an event without a time, which EventFile adds.
ProtobufWriter event_at(std::int64_t step);

// One event of a file, as far as resuming needs it.
struct EventRecord {
  std::size_t begin = 0;            // bytes from the start of the file
  std::vector<std::string> tags{};  // of its scalars
  bool has_text = false;            // or another value of a plugin
  bool is_end = false;              // of a session of hyper-parameters
  bool is_step = false;             // has train_loss_step
  std::int64_t epoch = -1;          // of an epoch record; -1: another record
  std::int64_t step = 0;
  double wall_time = 0;
  bool is_of_kindling = false;  // the first event of a file that Kindling has written
};

// Reads whole events one after another, in memory of one event.
class KINDLING_API EventReader {
 public:
  explicit EventReader(const std::filesystem::path& path);
  ~EventReader();
  // Returns false at the end, or at bytes that are not an event. Throws Error if the file cannot be read.
  bool next(EventRecord& record);
  std::size_t end() const noexcept { return end_; }           // bytes of whole events so far
  bool is_damaged() const noexcept { return end_ != size_; }  // after the last event

 private:
  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;
  std::size_t size_ = 0, end_ = 0;
};

}  // namespace kindling
