/* Ranks of MPI that train one model from their own samples: mpi_ranks.sh runs it with 3 of them, of which 0
 * and 1 train together in a communicator of their own. Exits with 0 if the weights of both are the same and
 * wrong communicators get errors. */
#include <kindling_c_mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void require(int is_right, const char* what) {
  if (is_right) return;
  fprintf(stderr, "%s: %s\n", what, kindling_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

int main(int argc, char** argv) {
  kindling_group group = NULL;
  require(kindling_group_join_mpi(MPI_COMM_WORLD, 60, &group) == KINDLING_USAGE_ERROR, "before MPI_Init");
  require(kindling_group_join_mpi_f(0, 60, &group) == KINDLING_USAGE_ERROR, "before MPI_Init, in Fortran");
  int provided, rank, size;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  require(size == 3, "3 ranks");
  require(kindling_group_join_mpi(MPI_COMM_NULL, 60, &group) == KINDLING_USAGE_ERROR, "a null communicator");

  MPI_Comm part, inter;
  MPI_Comm_split(MPI_COMM_WORLD, rank < 2, rank, &part);
  MPI_Intercomm_create(part, 0, MPI_COMM_WORLD, rank < 2 ? 2 : 0, 5, &inter);
  require(kindling_group_join_mpi(inter, 60, &group) == KINDLING_USAGE_ERROR, "an inter-communicator");
  MPI_Comm_free(&inter);

  if (rank < 2) {
    require(kindling_group_join_mpi_f(MPI_Comm_c2f(part), 60, &group) == KINDLING_OK, "the communicator");
    const char* settings[] = {"model.name=\"mlp_regressor\"", "model.hidden=[16]", "trainer.num_threads=1"};
    kindling_trainer trainer;
    require(kindling_trainer_create(settings, 3, group, &trainer) == KINDLING_OK, "a trainer");
    double x[8][2], y[8], output[8];
    for (int step = 0; step < 20; ++step) {
      const int64_t samples = rank == 1 && step % 4 == 3 ? 0 : 8; /* a rank without samples */
      const int64_t x_shape[] = {samples, 2}, y_shape[] = {samples, 1};
      for (int i = 0; i < 8; ++i) {
        x[i][0] = 0.1 * ((i + 3 * step + 5 * rank) % 10);
        x[i][1] = 0.1 * ((7 * i + step) % 10);
        y[i] = x[i][0] - x[i][1];
      }
      const kindling_array inputs = {x, x_shape, NULL, 2, KINDLING_FLOAT64, KINDLING_CPU, 0};
      const kindling_array targets = {y, y_shape, NULL, 2, KINDLING_FLOAT64, KINDLING_CPU, 0};
      require(kindling_train_step(trainer, &inputs, 1, &targets, 1) == KINDLING_OK, "a step");
    }
    for (int i = 0; i < 8; ++i) x[i][0] = x[i][1] = 0.1 * i;
    const int64_t x_shape[] = {8, 2}, y_shape[] = {8, 1};
    const kindling_array inputs = {x, x_shape, NULL, 2, KINDLING_FLOAT64, KINDLING_CPU, 0};
    const kindling_array outputs = {output, y_shape, NULL, 2, KINDLING_FLOAT64, KINDLING_CPU, 0};
    require(kindling_infer(trainer, &inputs, 1, &outputs, 1) == KINDLING_OK, "outputs");
    double both[16];
    MPI_Gather(output, 8, MPI_DOUBLE, both, 8, MPI_DOUBLE, 0, part);
    if (rank == 0) require(memcmp(both, both + 8, sizeof(output)) == 0, "the weights of both ranks");
    kindling_trainer_free(trainer);
    kindling_group_free(group);
    if (rank == 0) printf("one model\n");
  }
  MPI_Comm_free(&part);
  MPI_Finalize();
  return kindling_group_join_mpi(MPI_COMM_WORLD, 60, &group) == KINDLING_USAGE_ERROR ? 0 : 1;
}
