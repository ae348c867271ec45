#pragma once

#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <string>

// The library HDF5, whose functions have one lock for all threads.
namespace kindling {

// Held while functions of the library are called: those of Kindling take turns, also where the library was
// built without its lock, and it does not print errors.
class Hdf5Turn {
 public:
  Hdf5Turn();
  ~Hdf5Turn();
  Hdf5Turn(const Hdf5Turn&) = delete;
  Hdf5Turn& operator=(const Hdf5Turn&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  H5E_auto2_t printer_ = nullptr;
  void* printer_data_ = nullptr;
};

// An object of the library, which is closed at the end.
class Hdf5Id {
 public:
  Hdf5Id(hid_t id, herr_t (*close)(hid_t)) noexcept : id_(id), close_(close) {}
  ~Hdf5Id();
  Hdf5Id(Hdf5Id&& other) noexcept;
  Hdf5Id& operator=(Hdf5Id&&) = delete;

  hid_t get() const noexcept { return id_; }
  bool is_valid() const noexcept { return id_ >= 0; }
  // Closes it now. Returns false if that fails, such as for data that cannot be written.
  bool close();

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// Returns the innermost reason of the latest failure, as the library words it. Requires the same turn.
std::string hdf5_reason();
// Throws DataError with this reason. Requires the same turn.
[[noreturn]] void refuse_hdf5(const std::string& place, const std::string& what);
// Returns a hint for a reason that says that a newer version of the library has written something.
std::string hint_for_version(const std::string& reason);

// A file that is open for reading.
struct Hdf5File {
  // Throws DataError for a file that cannot be read.
  explicit Hdf5File(const std::filesystem::path& path);

  std::filesystem::path path;
  Hdf5Id id;
};

}  // namespace kindling
