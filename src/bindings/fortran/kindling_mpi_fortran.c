/* The procedure of the module kindling_mpi, compiled by the program's MPI wrapper for C. */
#include <ISO_Fortran_binding.h>
#include <kindling_c_mpi.h>

/* In kindling_fortran.c. */
void kindling_fortran_finish(kindling_status status, int32_t* stat, const CFI_cdesc_t* errmsg);

void kindling_fortran_group_join_mpi(kindling_group* group, const MPI_Fint* communicator, const double* timeout_s, int32_t* stat,
                                     const CFI_cdesc_t* errmsg) {
  const kindling_status status = kindling_group_join_mpi_f(*communicator, timeout_s ? *timeout_s : 0, group);
  kindling_fortran_finish(status, stat, errmsg);
}
