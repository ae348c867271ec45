! Without `stat` an error ends the program with its text and a code that is not 0.
program error_stop
  use kindling
  implicit none
  type(kindling_trainer) :: net
  complex :: x(2, 2)
  x = 1
  call kindling_create(net, [character(len=30) :: 'model.name="linear_regression"'])
  call kindling_train_step(net, x, x)
  print '(a)', 'it continued'
end program
