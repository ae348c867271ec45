#include "loggers/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "base/file_descriptor.h"
#include "base/file_operations.h"
#include "base/folder.h"
#include "base/system.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxEventBytes = std::size_t{64} << 20, kMaxBuffered = std::size_t{1} << 16,
                      kHeaderBytes = 12, kFooterBytes = 4;
constexpr auto kMaxAge = std::chrono::seconds(2);
constexpr std::string_view kWriter = "kindling";  // in the first event of a file

// CRC-32C (RFC 3720, B.4), reflected, one table entry per byte.
constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    table[i] = crc;
  }
  return table;
}();

// TFRecord stores checksums masked, because a checksum of data that contain checksums is weak.
std::uint32_t masked_crc(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  crc = ~crc;
  return std::rotr(crc, 15) + 0xa282ead8u;
}

template <class Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(number >> 8 * i & 0xff);
  return bytes;
}

template <class Number>
Number from_little_endian(std::string_view bytes) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    number |= static_cast<Number>(static_cast<unsigned char>(bytes[i])) << 8 * i;
  return number;
}

void append_frame(const ProtobufWriter& event, std::string& buffer) {
  const std::string length = little_endian(std::uint64_t{event.size()});
  buffer.append(length).append(little_endian(masked_crc(length)));
  const std::size_t begin = buffer.size();
  for (const std::string_view piece : event.pieces()) buffer += piece;
  buffer += little_endian(masked_crc(std::string_view(buffer).substr(begin)));
}

// Reads protobuf's wire format field by field. Ends at the first field that is not whole.
struct FieldReader {
  std::string_view rest;
  std::uint64_t field = 0, number = 0;  // number: a varint, or the bits of a float or double
  std::string_view bytes{};

  bool next() {
    const auto key = varint();
    if (!key) return false;
    field = *key >> 3;
    switch (*key & 7) {
      case 0:
        return take_number(varint());
      case 1:
        return take_number(fixed<std::uint64_t>());
      case 2: {
        const auto size = varint();
        if (!size || *size > rest.size()) return false;
        bytes = rest.substr(0, *size);
        rest.remove_prefix(*size);
        return true;
      }
      case 5:
        return take_number(fixed<std::uint32_t>());
      default:
        return false;
    }
  }

 private:
  bool take_number(std::optional<std::uint64_t> value) {
    number = value.value_or(0);
    return value.has_value();
  }
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest.front());
      rest.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return {};
  }
  template <class Number>
  std::optional<std::uint64_t> fixed() {
    if (rest.size() < sizeof(Number)) return {};
    const auto value = from_little_endian<Number>(rest);
    rest.remove_prefix(sizeof(Number));
    return value;
  }
};

void read_scalar(std::string_view value, EventRecord& record) {
  FieldReader fields{value};
  std::string_view tag;
  std::optional<float> scalar;
  while (fields.next()) {
    if (fields.field == SummaryValueField::tag) tag = fields.bytes;
    if (fields.field == SummaryValueField::simple_value)
      scalar = std::bit_cast<float>(static_cast<std::uint32_t>(fields.number));
  }
  record.is_end |= tag == kSessionEndTag;
  record.has_text |= !scalar && tag != kSessionEndTag;
  if (!scalar) return;
  record.tags.emplace_back(tag);
  record.is_step |= tag == "train_loss_step";
  if (tag == "epoch" && *scalar >= 0 && *scalar < 1e9f) record.epoch = static_cast<std::int64_t>(*scalar);
}

EventRecord parsed_event(std::string_view event, std::size_t begin) {
  EventRecord record{.begin = begin};
  FieldReader fields{event};
  while (fields.next()) {
    if (fields.field == EventField::wall_time) record.wall_time = std::bit_cast<double>(fields.number);
    if (fields.field == EventField::step) record.step = static_cast<std::int64_t>(fields.number);
    if (fields.field == EventField::source_metadata)
      for (FieldReader source{fields.bytes}; source.next();)
        record.is_of_kindling |= source.field == 1 && source.bytes == kWriter;
    if (fields.field != EventField::summary) continue;
    for (FieldReader values{fields.bytes}; values.next();)
      if (values.field == 1) read_scalar(values.bytes, record);
  }
  return record;
}

}  // namespace

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ProtobufWriter event_at(std::int64_t step) {
  ProtobufWriter event;
  event.integer(EventField::step, step);
  return event;
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step,
                     std::function<double()> clock)
    : clock_(std::move(clock)) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  const std::string host = host_name();
  const std::string name = "events.out.tfevents." + std::to_string(seconds.count()) + "." +
                           (host.empty() ? "localhost" : host) + "." + std::to_string(::getpid()) + ".";
  int number = 0;
  do path_ = std::filesystem::absolute(folder) / (name + std::to_string(number++));
  while (std::filesystem::exists(path_));
  file_ = opened(path_, O_RDWR | O_CREAT | O_EXCL | O_APPEND);
  ProtobufWriter version = event_at(0), source;
  source.text(1, kWriter);
  version.text(EventField::file_version, "brain.Event:2");
  version.message(EventField::source_metadata, std::move(source));
  append(std::move(version));
  ProtobufWriter start = event_at(first_step), session;
  session.integer(1, 1);  // SessionLog.status: START
  start.message(EventField::session_log, std::move(session));
  append(std::move(start));
}

EventFile::~EventFile() {
  if (!buffer_.empty()) write_all(file_->get(), buffer_);
}

void EventFile::append(ProtobufWriter event) {
  time_ = std::max(time_, clock_());
  event.real64(EventField::wall_time, time_);
  append_frame(event, buffer_);
  if (buffer_.size() > kMaxBuffered || std::chrono::steady_clock::now() - flushed_ > kMaxAge) flush();
}

void EventFile::flush() {
  flushed_ = std::chrono::steady_clock::now();
  if (!is_at_path(*file_, path_)) restore();
  if (buffer_.empty()) return;
  const off_t before = ::lseek(file_->get(), 0, SEEK_END);
  if (const int code = write_all(file_->get(), buffer_)) {
    // If removing the partial event fails too, the first error is still the one to report.
    without_interruptions([&] { return file_operations().ftruncate(file_->get(), before); });
    fail_on_file(path_, "write", code, buffer_.size());
  }
  buffer_.clear();
}

// The open file still has the bytes whose name has been removed. A file that has replaced it belongs to
// another program, so the events get another name.
void EventFile::restore() {
  const std::string former = path_.string();
  while (std::filesystem::exists(path_)) path_ += "_";
  const off_t size = ::lseek(file_->get(), 0, SEEK_END);
  if (size < 0) fail_on_file(path_, "examine", errno);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  for (std::size_t filled = 0; filled < bytes.size();) {
    const ssize_t got = without_interruptions([&] {
      return ::pread(file_->get(), bytes.data() + filled, bytes.size() - filled, static_cast<off_t>(filled));
    });
    if (got < 0) fail_on_file(path_, "read", errno);
    if (got == 0) bytes.resize(filled);
    filled += static_cast<std::size_t>(got);
  }
  write_file_atomically(path_, bytes);
  file_ = opened(path_, O_RDWR | O_APPEND);
  has_durable_name_ = false;
  log_warning(former +
              (former == path_.string()
                   ? ": the file was removed while it was being written; it has been written again"
                   : ": another file has replaced it while it was being written; the events are in " +
                         path_.string()));
}

void EventFile::sync() {
  flush();
  if (const int code = sync_to_disk(file_->get())) fail_on_file(path_, "sync", code);
  if (!std::exchange(has_durable_name_, true)) sync_folder(folder_of(path_));
}

EventReader::EventReader(const std::filesystem::path& path)
    : path_(path), file_(opened(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)) {
  struct stat status {};
  if (::fstat(file_->get(), &status) != 0) fail_on_file(path_, "examine", errno);
  if (S_ISREG(status.st_mode)) size_ = static_cast<std::size_t>(status.st_size);
}

EventReader::~EventReader() = default;

bool EventReader::next(EventRecord& record) {
  const auto read = [&](std::size_t offset, std::size_t size) {
    std::string bytes(size, '\0');
    const ssize_t got = without_interruptions(
        [&] { return ::pread(file_->get(), bytes.data(), size, static_cast<off_t>(offset)); });
    if (got < 0) fail_on_file(path_, "read", errno);
    bytes.resize(static_cast<std::size_t>(got));
    return bytes;
  };
  if (size_ - end_ < kHeaderBytes + kFooterBytes) return false;
  const std::string header = read(end_, kHeaderBytes);
  if (header.size() != kHeaderBytes) return false;
  const auto length = from_little_endian<std::uint64_t>(header);
  const std::string_view view = header;
  if (from_little_endian<std::uint32_t>(view.substr(8)) != masked_crc(view.substr(0, 8))) return false;
  if (length > kMaxEventBytes || length > size_ - end_ - kHeaderBytes - kFooterBytes) return false;
  const std::string body = read(end_ + kHeaderBytes, length + kFooterBytes);
  if (body.size() != length + kFooterBytes) return false;
  const std::string_view event = std::string_view(body).substr(0, length);
  if (from_little_endian<std::uint32_t>(std::string_view(body).substr(length)) != masked_crc(event))
    return false;
  record = parsed_event(event, end_);
  end_ += kHeaderBytes + length + kFooterBytes;
  return true;
}

}  // namespace kindling
