/* Groups of processes for programs with MPI, compiled by the program's own MPI wrapper: the library needs no
 * MPI. */
#ifndef KINDLING_C_MPI_H
#define KINDLING_C_MPI_H

#include <kindling_c.h>
#include <mpi.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Joins the ranks of a communicator, which train one model: kindling_group_join() with their ranks.
 * Collective over `comm`, which may be a part of MPI_COMM_WORLD; its thread level may be MPI_THREAD_FUNNELED
 * if the calling thread is the main one. The ranks meet over TCP; later calls use no MPI. An error of one
 * rank is one of all. */
static inline kindling_status kindling_group_join_mpi(MPI_Comm comm, double timeout_s,
                                                      kindling_group* group) {
  static const char* const here = "kindling_group_join_mpi";
  int is_initialized = 0, is_finalized = 0, is_inter = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (!is_initialized || is_finalized)
    return kindling_set_error(KINDLING_USAGE_ERROR, here, "MPI is not running",
                              "a call between MPI_Init and MPI_Finalize", NULL);
  if (comm == MPI_COMM_NULL)
    return kindling_set_error(KINDLING_USAGE_ERROR, here, "the communicator is MPI_COMM_NULL",
                              "a communicator that this rank belongs to", NULL);
  MPI_Comm_test_inter(comm, &is_inter);
  if (is_inter)
    return kindling_set_error(KINDLING_USAGE_ERROR, here, "the communicator is an inter-communicator",
                              "an intra-communicator", "make one with MPI_Intercomm_merge");

  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &local_rank);
  MPI_Comm_size(machine, &local_size);
  MPI_Comm_free(&machine);

  /* What is wrong on one rank would let the others wait. */
  int is_right = group != NULL && timeout_s >= 0, are_all_right = 0;
  MPI_Allreduce(&is_right, &are_all_right, 1, MPI_INT, MPI_MIN, comm);
  if (!are_all_right)
    return kindling_set_error(KINDLING_USAGE_ERROR, here,
                              is_right ? "another rank has no group to write, or a timeout below 0"
                                       : "no group to write, or a timeout below 0",
                              "the address of a group, and seconds", NULL);

  char address[256] = {0};
  int32_t port = 0;
  kindling_status status = KINDLING_OK;
  if (rank == 0) status = kindling_free_address(address, sizeof(address), &port);
  if (local_size == size) strcpy(address, "127.0.0.1");
  MPI_Bcast(address, (int)sizeof(address), MPI_CHAR, 0, comm);
  MPI_Bcast(&port, 1, MPI_INT32_T, 0, comm);
  if (status != KINDLING_OK) return status;
  if (port == 0)
    return kindling_set_error(KINDLING_DISTRIBUTED_ERROR, here, "rank 0 has no address to meet at",
                              "a free TCP port on its machine", "see the error of rank 0");
  return kindling_group_join(rank, size, local_rank, address, port, timeout_s, group);
}

/* The same for the handle of a communicator in Fortran. */
static inline kindling_status kindling_group_join_mpi_f(MPI_Fint comm, double timeout_s,
                                                        kindling_group* group) {
  int is_initialized = 0; /* MPI_Comm_f2c may need MPI */
  MPI_Initialized(&is_initialized);
  return kindling_group_join_mpi(is_initialized ? MPI_Comm_f2c(comm) : MPI_COMM_NULL, timeout_s, group);
}

#ifdef __cplusplus
}
#endif

#endif
