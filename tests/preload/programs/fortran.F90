! The collectives as a Fortran program calls them. Values are compared with what is computed here. Sentinels are MPI's own:
! MPI_IN_PLACE, MPI_BOTTOM, MPI_STATUS_IGNORE.
program collectives
#include "interface.inc"
  integer, parameter :: n = 100
  integer :: rank, ranks, error, i, r, total
  COMM :: ring

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  total = ranks * (ranks - 1) / 2
  do i = 1, 20
    call MPI_Barrier(MPI_COMM_WORLD, error)
  end do
  call movements
  call reductions
  call in_place
  call absolute_addresses
  call requests
  call neighbors
  if (rank == 0) print '(a)', 'fortran: ok'
  call MPI_Finalize(error)

contains

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    integer :: ignored
    if (holds) return
    print '(a,i0,2a)', 'rank ', rank, ': wrong: ', what
    call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine

  integer function value(of, at)
    integer, intent(in) :: of, at
    value = 1000 * of + at
  end function

  subroutine movements
    integer, allocatable :: from(:), to(:)
    integer :: counts(0:ranks-1), places(0:ranks-1), far(0:ranks-1)
    DATATYPE :: types(0:ranks-1)
    integer :: j
    allocate(from(n * ranks), to(n * ranks))
    from = [(value(rank, i), i = 1, n * ranks)]
    to = from
    call MPI_Bcast(to, n, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, error)
    call check(all(to(:n) == [(value(ranks - 1, i), i = 1, n)]), 'bcast')
    call MPI_Allgather(from, n, MPI_INTEGER, to, n, MPI_INTEGER, MPI_COMM_WORLD, error)
    call check(all(to == [((value(r, i), i = 1, n), r = 0, ranks - 1)]), 'allgather')
    call MPI_Alltoall(from, n, MPI_INTEGER, to, n, MPI_INTEGER, MPI_COMM_WORLD, error)
    call check(all(to == [((value(r, n * rank + i), i = 1, n), r = 0, ranks - 1)]), 'alltoall')
    to = -1
    call MPI_Gather(from, n, MPI_INTEGER, to, n, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    if (rank == 0) call check(all(to == [((value(r, i), i = 1, n), r = 0, ranks - 1)]), 'gather')
    call MPI_Scatter(from, n, MPI_INTEGER, to, n, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    call check(all(to(:n) == [(value(0, n * rank + i), i = 1, n)]), 'scatter')
    counts = [(r + 1, r = 0, ranks - 1)]
    places = [(n * r, r = 0, ranks - 1)]
    to = -1
    call MPI_Allgatherv(from, rank + 1, MPI_INTEGER, to, counts, places, MPI_INTEGER, MPI_COMM_WORLD, error)
    do r = 0, ranks - 1
      call check(all(to(n*r+1:n*r+r+1) == [(value(r, i), i = 1, r + 1)]) .and. to(n*r+r+2) == -1, 'allgatherv')
    end do
    to = -1
    call MPI_Gatherv(from, rank + 1, MPI_INTEGER, to, counts, places, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    if (rank == 0) call check(to(n * (ranks - 1) + ranks) == value(ranks - 1, ranks), 'gatherv')
    call MPI_Scatterv(from, counts, places, MPI_INTEGER, to, rank + 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    call check(all(to(:rank+1) == [(value(0, n * rank + i), i = 1, rank + 1)]), 'scatterv')
    counts = rank + 1
    to = -1
    call MPI_Alltoallv(from, counts, places, MPI_INTEGER, to, [(r + 1, r = 0, ranks - 1)], places, MPI_INTEGER, &
                       MPI_COMM_WORLD, error)
    do r = 0, ranks - 1
      call check(all(to(n*r+1:n*r+r+1) == [(value(r, n * rank + i), i = 1, r + 1)]), 'alltoallv')
    end do
    do r = 0, ranks - 1
      types(r) = MPI_INTEGER
      far(r) = 4 * n * r
    end do
    to = -1
    call MPI_Alltoallw(from, counts, far, types, to, [(r + 1, r = 0, ranks - 1)], far, types, MPI_COMM_WORLD, error)
    do r = 0, ranks - 1
      call check(all([(to(n*r+j) == value(r, n * rank + j), j = 1, r + 1)]), 'alltoallw')
    end do
  end subroutine

  subroutine reductions
    double precision :: mine(n), sums(n)
    integer :: whole(ranks), one(1), counts(ranks)
    logical :: truth(1), all_true(1)
    mine = [(dble(rank + i), i = 1, n)]
    call MPI_Allreduce(mine, sums, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    call check(all(sums == [(dble(total + ranks * i), i = 1, n)]), 'allreduce')
    sums = 0
    call MPI_Reduce(mine, sums, n, MPI_DOUBLE_PRECISION, MPI_MAX, ranks - 1, MPI_COMM_WORLD, error)
    if (rank == ranks - 1) call check(all(sums == mine), 'reduce')
    call MPI_Scan(mine, sums, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    call check(sums(1) == sum([(dble(r + 1), r = 0, rank)]), 'scan')
    call MPI_Exscan(mine, sums, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    if (rank > 0) call check(sums(1) == sum([(dble(r + 1), r = 0, rank - 1)]), 'exscan')
    whole = [(rank + r, r = 1, ranks)]
    call MPI_Reduce_scatter_block(whole, one, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call check(one(1) == total + ranks * (rank + 1), 'reduce_scatter_block')
    counts = 1
    call MPI_Reduce_scatter(whole, one, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call check(one(1) == total + ranks * (rank + 1), 'reduce_scatter')
    truth = rank >= 0
    call MPI_Allreduce(truth, all_true, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, error)
    call check(all_true(1), 'allreduce of logicals')
  end subroutine

  subroutine in_place
    integer :: sums(n), parts(ranks)
    sums = rank
    call MPI_Allreduce(MPI_IN_PLACE, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call check(all(sums == total), 'allreduce in place')
    parts = -1
    parts(rank + 1) = rank
    call MPI_Allgather(MPI_IN_PLACE, 1, MPI_INTEGER, parts, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
    call check(all(parts == [(r, r = 0, ranks - 1)]), 'allgather in place')
    if (rank == 0) then
      call MPI_Scatter(parts, 1, MPI_INTEGER, MPI_IN_PLACE, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    else
      call MPI_Scatter(parts, 1, MPI_INTEGER, sums, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
      call check(sums(1) == rank, 'scatter in place')
    end if
    if (rank == 0) then
      call MPI_Gather(MPI_IN_PLACE, 1, MPI_INTEGER, parts, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
      call check(all(parts == [(r, r = 0, ranks - 1)]), 'gather in place')
    else
      call MPI_Gather(sums, 1, MPI_INTEGER, parts, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
    end if
  end subroutine

  subroutine absolute_addresses
    integer, volatile :: numbers(n)
    integer(kind=MPI_ADDRESS_KIND) :: at(1)
    DATATYPE :: there
    numbers = [(value(rank, i), i = 1, n)]
    call MPI_Get_address(numbers, at(1), error)
    call MPI_Type_create_hindexed(1, [n], at, MPI_INTEGER, there, error)
    call MPI_Type_commit(there, error)
    call MPI_Bcast(MPI_BOTTOM, 1, there, 0, MPI_COMM_WORLD, error)
    call check(all(numbers == [(value(0, i), i = 1, n)]), 'bcast from MPI_BOTTOM')
    call MPI_Type_free(there, error)
  end subroutine

  subroutine requests
    integer :: mine(n), sums(n), root(n), token(1), got(1)
    REQUEST :: pending(4)
    logical :: done
    mine = rank
    root = rank
    token = rank
    call MPI_Iallreduce(mine, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, pending(1), error)
    call MPI_Ibcast(root, n, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, pending(2), error)
    call MPI_Irecv(got, 1, MPI_INTEGER, mod(rank + ranks - 1, ranks), 7, MPI_COMM_WORLD, pending(3), error)
    call MPI_Isend(token, 1, MPI_INTEGER, mod(rank + 1, ranks), 7, MPI_COMM_WORLD, pending(4), error)
    call MPI_Waitall(4, pending, MPI_STATUSES_IGNORE, error)
    call check(all(sums == total), 'iallreduce')
    call check(all(root == ranks - 1), 'ibcast')
    call check(got(1) == mod(rank + ranks - 1, ranks), 'isend')
    sums = rank
    call MPI_Iallreduce(MPI_IN_PLACE, sums, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, pending(1), error)
    done = .false.
    do while (.not. done)
      call MPI_Test(pending(1), done, MPI_STATUS_IGNORE, error)
    end do
    call check(all(sums == total), 'iallreduce in place')
  end subroutine

  subroutine neighbors
    integer :: mine(2), got(2)
    call MPI_Cart_create(MPI_COMM_WORLD, 1, [ranks], [.true.], .false., ring, error)
    do i = 1, 20
      call MPI_Barrier(ring, error)
    end do
    mine = [value(rank, 1), value(rank, 2)]
    call MPI_Neighbor_alltoall(mine, 1, MPI_INTEGER, got, 1, MPI_INTEGER, ring, error)
    if (ranks > 2) then
      call check(got(1) == value(mod(rank + ranks - 1, ranks), 2), 'neighbor_alltoall from below')
      call check(got(2) == value(mod(rank + 1, ranks), 1), 'neighbor_alltoall from above')
    end if
    call MPI_Neighbor_allgather(mine, 1, MPI_INTEGER, got, 1, MPI_INTEGER, ring, error)
    call check(got(2) == value(mod(rank + 1, ranks), 1), 'neighbor_allgather')
    call MPI_Comm_free(ring, error)
  end subroutine
end program
