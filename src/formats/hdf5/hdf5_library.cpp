#include "formats/hdf5/hdf5_library.h"

#include <string_view>
#include <utility>

#include "formats/hdf5_lock.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

// Upwards: the innermost failure comes first.
herr_t keep_first(unsigned number, const H5E_error2_t* error, void* text) {
  if (number == 0 && error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string version_text() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

// The library's texts of 1.10 to 2.0.
ErrorParts parts_for_file(const std::string& path, const std::string& reason) {
  if (has(reason, "signature not found"))
    return {.place = path,
            .found = "it does not begin as an HDF5 file",
            .wanted = "a file that HDF5 or h5py has written"};
  if (has(reason, "already open for write") || has(reason, "errno = 11"))
    return {.place = path,
            .found = "another process is writing it, or was killed while it did (" + reason + ")",
            .wanted = "a file that is closed",
            .remedy = "wait until it is closed; after a process was killed, run h5clear -s " + path};
  if (has(reason, "unable to lock file"))
    return {.place = path,
            .found = "its file system has no locks (" + reason + ")",
            .wanted = "a file that can be locked while it is read",
            .remedy = "set the environment variable HDF5_USE_FILE_LOCKING=FALSE if no process writes it"};
  if (has(reason, "truncated file"))
    return {.place = path,
            .found = "it has been cut off (" + reason + ")",
            .wanted = "a complete file",
            .remedy = "copy the file again"};
  return {.place = path,
          .found = "HDF5 cannot open it (" + reason + ")",
          .wanted = "a file that HDF5 " + version_text() + " can read",
          .remedy = has(reason, "Too many open files") ? "raise the limit of open files: ulimit -n 65536"
                                                       : hint_for_version(reason)};
}

// The macro H5F_ACC_RDONLY may end the process if the library has another version than its header.
constexpr unsigned kReadOnly = 0;

Hdf5Id open_file(const std::filesystem::path& path) {
  const InputFile regular(path);
  const Hdf5Turn turn;
  Hdf5Id id(H5Fopen(path.c_str(), kReadOnly, H5P_DEFAULT), H5Fclose);
  if (!id.is_valid()) throw DataError(parts_for_file(path.string(), hdf5_reason()));
  return id;
}

}  // namespace

Hdf5Turn::Hdf5Turn() : lock_(hdf5_mutex()) {
  H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Turn::~Hdf5Turn() { H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_); }

Hdf5Id::Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

Hdf5Id::~Hdf5Id() { close(); }

bool Hdf5Id::close() {
  if (!is_valid()) return true;
  const Hdf5Turn turn;
  return close_(std::exchange(id_, -1)) >= 0;
}

std::string hdf5_reason() {
  std::string reason = "unknown reason";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
  return one_line(reason);
}

void refuse_hdf5(const std::string& place, const std::string& what) {
  const std::string reason = hdf5_reason();
  throw DataError({.place = place,
                   .found = what + " (" + reason + ")",
                   .wanted = "a data set that HDF5 " + version_text() + " can read",
                   .remedy = hint_for_version(reason)});
}

std::string hint_for_version(const std::string& reason) {
  if (!has(reason, "version")) return "";
  return "a newer HDF5 has written it; write it with h5py.File(..., libver=(\"earliest\", \"v110\")), or "
         "convert it with that version's h5repack --high=2";
}

Hdf5File::Hdf5File(const std::filesystem::path& path) : path(path), id(open_file(path)) {}

}  // namespace kindling
