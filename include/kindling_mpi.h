#pragma once

#include <kindling/distributed/process_group.h>
#include <kindling/launch/launch_environment.h>
#include <mpi.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>

namespace kindling {

// Joins the ranks of a communicator, which train one model. Collective over `comm`, which may be a part of
// MPI_COMM_WORLD; its thread level may be MPI_THREAD_FUNNELED if the calling thread is the main one. The
// ranks meet over TCP; later calls use no MPI. This header is compiled by the program's own MPI wrapper: the
// library needs no MPI. Throws ConfigError if MPI is not running, and for MPI_COMM_NULL and
// inter-communicators; DistributedError as ProcessGroup::join() does.
inline std::shared_ptr<ProcessGroup> join_mpi(MPI_Comm comm, const DistributedOptions& options = {}) {
  constexpr const char* kHere = "join_mpi";
  int is_initialized = 0, is_finalized = 0, is_inter = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_initialized == 0 || is_finalized != 0)
    throw ConfigError({.place = kHere,
                       .found = "MPI is not running",
                       .wanted = "a call between MPI_Init and MPI_Finalize"});
  if (comm == MPI_COMM_NULL)
    throw ConfigError({.place = kHere,
                       .found = "the communicator is MPI_COMM_NULL",
                       .wanted = "a communicator that this rank belongs to"});
  MPI_Comm_test_inter(comm, &is_inter);
  if (is_inter != 0)
    throw ConfigError({.place = kHere,
                       .found = "the communicator is an inter-communicator",
                       .wanted = "an intra-communicator",
                       .remedy = "make one with MPI_Intercomm_merge"});

  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &local_rank);
  MPI_Comm_size(machine, &local_size);
  MPI_Comm_free(&machine);

  std::array<char, 256> host{};
  std::uint16_t port = 0;
  std::exception_ptr error;  // the others wait for the broadcast first
  if (rank == 0) try {
      const MasterAddress address = free_master_address();
      std::strncpy(host.data(), local_size == size ? "127.0.0.1" : address.host.c_str(), host.size() - 1);
      port = address.port;
    } catch (...) {
      error = std::current_exception();
    }
  MPI_Bcast(host.data(), static_cast<int>(host.size()), MPI_CHAR, 0, comm);
  MPI_Bcast(&port, 1, MPI_UINT16_T, 0, comm);
  if (error) std::rethrow_exception(error);
  if (port == 0)
    throw DistributedError({.place = kHere,
                            .found = "rank 0 has no address to meet at",
                            .wanted = "a free TCP port on its machine",
                            .remedy = "see the error of rank 0"});
  return ProcessGroup::join({.rank = rank,
                             .size = size,
                             .local_rank = local_rank,
                             .local_size = local_size,
                             .launcher = "MPI",
                             .master_address = host.data(),
                             .master_port = port},
                            options);
}

}  // namespace kindling
