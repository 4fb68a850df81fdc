! As completions.c, from Fortran: each collective that does not block, in each call that completes requests, in lists with
! messages. -DHAVE_PERSISTENT: persistent forms, too. Without what fails in MPICH's own: in 4.0 indices and
! persistent forms, in its mpi_f08 neighbor_alltoallw on a grid.
#ifdef USE_MPI_F08
#define STATUS_LIST type(MPI_Status) :: statuses(most_list)
#define ONE(k) statuses(k)
#define TAG(k) statuses(k)%MPI_TAG
#define SOURCE(k) statuses(k)%MPI_SOURCE
#else
#define STATUS_LIST integer :: statuses(MPI_STATUS_SIZE, most_list)
#define ONE(k) statuses(:,k)
#define TAG(k) statuses(MPI_TAG,k)
#define SOURCE(k) statuses(MPI_SOURCE,k)
#endif

program completions
#include "interface.inc"
  integer, parameter :: n = 400, most_ranks = 4, most = most_ranks * (n + 1) + 2, most_operations = 22, most_list = 24
  integer, asynchronous :: from(0:most-1, most_operations), to(0:most-1, most_operations), sent(1), received(1)
  integer, asynchronous :: lengths(0:most_ranks-1), both(0:most_ranks-1), places(0:most_ranks-1), bytes(0:most_ranks-1)
  integer, asynchronous :: near_lengths(0:1), near_both(0:1)
  integer(kind=MPI_ADDRESS_KIND), asynchronous :: far(0:1)
  DATATYPE, asynchronous :: types(0:most_ranks-1)
  integer :: near(0:1), rank, ranks, error, turn, r, operation, way, starts(2), listed(most_list), list_count, at
  integer :: operations, calls, ways, version_length, no_index
  character(MPI_MAX_LIBRARY_VERSION_STRING) :: version
  logical :: is_seen(most_list)
  COMM :: world, ring
  REQUEST :: requests(most_list)
  STATUS_LIST

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call check(ranks <= most_ranks, 'number of ranks')
  call MPI_Comm_dup(MPI_COMM_WORLD, world, error)
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [ranks], [.true.], .false., ring, error)
  call MPI_Cart_shift(ring, 0, 1, near(0), near(1), error)
  lengths = [(length(r), r = 0, most_ranks - 1)]
  both = [(length(rank + r), r = 0, most_ranks - 1)]
  places = [(place(r), r = 0, most_ranks - 1)]
  bytes = 4 * places
  far = bytes(0:1)
  near_lengths = [(length(near(r)), r = 0, 1)]
  near_both = [(length(rank + near(r)), r = 0, 1)]
  do r = 0, most_ranks - 1
    types(r) = MPI_INTEGER
  end do
  call MPI_Barrier(world, error)
  call MPI_Barrier(ring, error)
  turn = 0
  starts = 0
  operations = most_operations
  calls = 10
  ways = 1
#ifdef HAVE_PERSISTENT
  ways = 2
#endif
  call MPI_Get_library_version(version, version_length, error)
  no_index = MPI_UNDEFINED
#ifdef USE_MPI_F08
  if (index(version, 'MPICH') > 0) then
    operations = 21
    no_index = MPI_UNDEFINED + 1  ! its mistake
  end if
#endif
  if (index(version, 'MPICH') > 0 .and. index(version, '4.0.') > 0) then
    calls = 6
    ways = 1
  end if
  do way = 1, ways
    do operation = 1, operations
      list_count = 4
      at = 1 + mod(operation, 3)
      listed(:4) = operation
      call run(way == 2)
    end do
    list_count = operations + 2
    at = operations / 2
    listed(:list_count) = [(merge(r, r - 2, r < at), r = 1, list_count)]
    call run(way == 2)
  end do
  if (rank == 0) print '(a,i0,1x,i0)', 'completions: ok ', starts
  call MPI_Finalize(error)

contains

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    integer :: ignored
    if (holds) return
    print '(a,i0,2a,3(a,i0))', 'rank ', rank, ': wrong: ', what, ', operation ', operation, ', form ', way, ', turn ', turn
    call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine

  integer function value(of, i)
    integer, intent(in) :: of, i
    value = 1000000 * (of + 1) + 10 * i + mod(turn, 10)
  end function

  integer function total(many, i)
    integer, intent(in) :: many, i
    integer :: of
    total = 0
    do of = 0, many - 1
      total = total + value(of, i)
    end do
  end function

  ! Blocks of unequal lengths, with holes before them.
  integer function length(of)
    integer, intent(in) :: of
    length = merge(n, n / 2, mod(of, 2) == 0)
  end function

  integer function place(block)
    integer, intent(in) :: block
    place = block * (n + 1) + 1
  end function

  subroutine begin(kind, s, root, to_request)
    integer, intent(in) :: kind, s, root
    REQUEST, intent(inout) :: to_request
    integer :: mine
    mine = length(rank)
#define OWN from(0,s)
#define GOT to(0,s)
#define INT MPI_INTEGER
    select case (kind)
    case (1)
      call MPI_Ibarrier(world, to_request, error)
    case (2)
      call MPI_Ibcast(GOT, n, INT, root, world, to_request, error)
    case (3)
      call MPI_Ireduce(OWN, GOT, n, INT, MPI_SUM, root, world, to_request, error)
    case (4)
      call MPI_Iallreduce(OWN, GOT, n, INT, MPI_SUM, world, to_request, error)
    case (5)
      call MPI_Ireduce_scatter_block(OWN, GOT, n, INT, MPI_SUM, world, to_request, error)
    case (6)
      call MPI_Ireduce_scatter(OWN, GOT, lengths, INT, MPI_SUM, world, to_request, error)
    case (7)
      call MPI_Iscan(OWN, GOT, n, INT, MPI_SUM, world, to_request, error)
    case (8)
      call MPI_Iexscan(OWN, GOT, n, INT, MPI_SUM, world, to_request, error)
    case (9)
      call MPI_Igather(OWN, n, INT, GOT, n, INT, root, world, to_request, error)
    case (10)
      call MPI_Igatherv(OWN, mine, INT, GOT, lengths, places, INT, root, world, to_request, error)
    case (11)
      call MPI_Iscatter(OWN, n, INT, GOT, n, INT, root, world, to_request, error)
    case (12)
      call MPI_Iscatterv(OWN, lengths, places, INT, GOT, mine, INT, root, world, to_request, error)
    case (13)
      call MPI_Iallgather(OWN, n, INT, GOT, n, INT, world, to_request, error)
    case (14)
      call MPI_Iallgatherv(OWN, mine, INT, GOT, lengths, places, INT, world, to_request, error)
    case (15)
      call MPI_Ialltoall(OWN, n, INT, GOT, n, INT, world, to_request, error)
    case (16)
      call MPI_Ialltoallv(OWN, both, places, INT, GOT, both, places, INT, world, to_request, error)
    case (17)
      call MPI_Ialltoallw(OWN, both, bytes, types, GOT, both, bytes, types, world, to_request, error)
    case (18)
      call MPI_Ineighbor_allgather(OWN, n, INT, GOT, n, INT, ring, to_request, error)
    case (19)
      call MPI_Ineighbor_allgatherv(OWN, mine, INT, GOT, near_lengths, places, INT, ring, to_request, error)
    case (20)
      call MPI_Ineighbor_alltoall(OWN, n, INT, GOT, n, INT, ring, to_request, error)
    case (21)
      call MPI_Ineighbor_alltoallv(OWN, near_both, places, INT, GOT, near_both, places, INT, ring, to_request, error)
    case (22)
      call MPI_Ineighbor_alltoallw(OWN, near_both, far, types, GOT, near_both, far, types, ring, to_request, error)
    end select
  end subroutine

#ifdef HAVE_PERSISTENT
  subroutine prepare(kind, s, root, to_request)
    integer, intent(in) :: kind, s, root
    REQUEST, intent(inout) :: to_request
    integer :: mine
    mine = length(rank)
#define INFO MPI_INFO_NULL
    select case (kind)
    case (1)
      call MPI_Barrier_init(world, INFO, to_request, error)
    case (2)
      call MPI_Bcast_init(GOT, n, INT, root, world, INFO, to_request, error)
    case (3)
      call MPI_Reduce_init(OWN, GOT, n, INT, MPI_SUM, root, world, INFO, to_request, error)
    case (4)
      call MPI_Allreduce_init(OWN, GOT, n, INT, MPI_SUM, world, INFO, to_request, error)
    case (5)
      call MPI_Reduce_scatter_block_init(OWN, GOT, n, INT, MPI_SUM, world, INFO, to_request, error)
    case (6)
      call MPI_Reduce_scatter_init(OWN, GOT, lengths, INT, MPI_SUM, world, INFO, to_request, error)
    case (7)
      call MPI_Scan_init(OWN, GOT, n, INT, MPI_SUM, world, INFO, to_request, error)
    case (8)
      call MPI_Exscan_init(OWN, GOT, n, INT, MPI_SUM, world, INFO, to_request, error)
    case (9)
      call MPI_Gather_init(OWN, n, INT, GOT, n, INT, root, world, INFO, to_request, error)
    case (10)
      call MPI_Gatherv_init(OWN, mine, INT, GOT, lengths, places, INT, root, world, INFO, to_request, error)
    case (11)
      call MPI_Scatter_init(OWN, n, INT, GOT, n, INT, root, world, INFO, to_request, error)
    case (12)
      call MPI_Scatterv_init(OWN, lengths, places, INT, GOT, mine, INT, root, world, INFO, to_request, error)
    case (13)
      call MPI_Allgather_init(OWN, n, INT, GOT, n, INT, world, INFO, to_request, error)
    case (14)
      call MPI_Allgatherv_init(OWN, mine, INT, GOT, lengths, places, INT, world, INFO, to_request, error)
    case (15)
      call MPI_Alltoall_init(OWN, n, INT, GOT, n, INT, world, INFO, to_request, error)
    case (16)
      call MPI_Alltoallv_init(OWN, both, places, INT, GOT, both, places, INT, world, INFO, to_request, error)
    case (17)
      call MPI_Alltoallw_init(OWN, both, bytes, types, GOT, both, bytes, types, world, INFO, to_request, error)
    case (18)
      call MPI_Neighbor_allgather_init(OWN, n, INT, GOT, n, INT, ring, INFO, to_request, error)
    case (19)
      call MPI_Neighbor_allgatherv_init(OWN, mine, INT, GOT, near_lengths, places, INT, ring, INFO, to_request, error)
    case (20)
      call MPI_Neighbor_alltoall_init(OWN, n, INT, GOT, n, INT, ring, INFO, to_request, error)
    case (21)
      call MPI_Neighbor_alltoallv_init(OWN, near_both, places, INT, GOT, near_both, places, INT, ring, INFO, to_request, error)
    case (22)
      call MPI_Neighbor_alltoallw_init(OWN, near_both, far, types, GOT, near_both, far, types, ring, INFO, to_request, error)
    end select
  end subroutine
#endif

  ! What the buffer holds at i; -1: untouched.
  integer function expected(kind, root, i)
    integer, intent(in) :: kind, root, i
    integer :: b, k, vb, vk
    b = i / n               ! of equal blocks: which, and the place in it
    k = mod(i, n)
    vb = i / (n + 1)        ! of those with holes
    vk = mod(i, n + 1) - 1
    expected = -1
    select case (kind)
    case (2)
      if (i < n) expected = value(root, i)
    case (3)
      if (rank == root .and. i < n) expected = total(ranks, i)
    case (4)
      if (i < n) expected = total(ranks, i)
    case (5)
      if (i < n) expected = total(ranks, rank * n + i)
    case (6)
      if (i < length(rank)) expected = total(ranks, sum(lengths(:rank-1)) + i)
    case (7)
      if (i < n) expected = total(rank + 1, i)
    case (8)
      if (rank > 0 .and. i < n) expected = total(rank, i)
    case (9)
      if (rank == root .and. b < ranks) expected = value(b, k)
    case (10)
      if (rank == root .and. vb < ranks .and. vk >= 0 .and. vk < length(vb)) expected = value(vb, vk)
    case (11)
      if (i < n) expected = value(root, rank * n + i)
    case (12)
      if (i < length(rank)) expected = value(root, place(rank) + i)
    case (13)
      if (b < ranks) expected = value(b, k)
    case (14)
      if (vb < ranks .and. vk >= 0 .and. vk < length(vb)) expected = value(vb, vk)
    case (15)
      if (b < ranks) expected = value(b, rank * n + k)
    case (16, 17)
      if (vb < ranks .and. vk >= 0 .and. vk < length(rank + vb)) expected = value(vb, place(rank) + vk)
    case (18)
      if (b < 2) expected = value(near(b), k)
    case (19)
      if (vb < 2 .and. vk >= 0) then
        if (vk < near_lengths(vb)) expected = value(near(vb), vk)
      end if
    case (20)
      if (b < 2) expected = value(near(b), (1 - b) * n + k)
    case (21, 22)
      if (vb < 2 .and. vk >= 0) then
        if (vk < near_both(vb)) expected = value(near(vb), place(1 - vb) + vk)
      end if
    end select
  end function

  logical function is_message(k)
    integer, intent(in) :: k
    is_message = k == at .or. k == at + 1
  end function

  ! The number of the operation at place k of the list.
  integer function slot(k)
    integer, intent(in) :: k
    slot = merge(k, k - 2, k < at)
  end function

  integer function root_of(k)
    integer, intent(in) :: k
    root_of = mod(slot(k), ranks)
  end function

  subroutine fill
    integer :: k, i
    turn = turn + 1
    sent = value(rank, 0)
    received = -1
    is_seen = .false.
    do k = 1, list_count
      if (is_message(k)) cycle
      from(:, slot(k)) = [(value(rank, i), i = 0, most - 1)]
      to(:, slot(k)) = -1
      if (listed(k) == 2 .and. rank == root_of(k)) to(:n-1, slot(k)) = from(:n-1, slot(k))
    end do
  end subroutine

  subroutine make(is_persistent)
    logical, intent(in) :: is_persistent
    integer :: k, next, before
    next = mod(rank + 1, ranks)
    before = mod(rank + ranks - 1, ranks)
    do k = 1, list_count
      if (k == at .and. is_persistent) then
        call MPI_Recv_init(received, 1, INT, before, 5, MPI_COMM_WORLD, requests(k), error)
      else if (k == at) then
        call MPI_Irecv(received, 1, INT, before, 5, MPI_COMM_WORLD, requests(k), error)
      else if (k == at + 1 .and. is_persistent) then
        call MPI_Send_init(sent, 1, INT, next, 5, MPI_COMM_WORLD, requests(k), error)
      else if (k == at + 1) then
        call MPI_Isend(sent, 1, INT, next, 5, MPI_COMM_WORLD, requests(k), error)
#ifdef HAVE_PERSISTENT
      else if (is_persistent) then
        call prepare(listed(k), slot(k), root_of(k), requests(k))
#endif
      else
        call begin(listed(k), slot(k), root_of(k), requests(k))
      end if
    end do
  end subroutine

  subroutine see(k)
    integer, intent(in) :: k
    call check(k >= 1 .and. k <= list_count, 'index')
    call check(.not. is_seen(k), 'completed twice')
    is_seen(k) = .true.
  end subroutine

  subroutine complete(by)
    integer, intent(in) :: by
    integer :: k, left, some, which, indices(most_list)
    logical :: done
    done = .false.
    left = list_count
    select case (by)
    case (1, 2, 3)
      do k = 1, list_count
        done = .false.
        do while (.not. done .and. by > 1)
          if (by == 2) call MPI_Test(requests(k), done, ONE(k), error)
          if (by == 3) call MPI_Request_get_status(requests(k), done, ONE(k), error)
        end do
        if (by == 1) call MPI_Wait(requests(k), ONE(k), error)
        if (by == 3) call MPI_Wait(requests(k), MPI_STATUS_IGNORE, error)
      end do
    case (4)
      call MPI_Waitall(list_count, requests, statuses, error)
    case (5)
      call MPI_Wait(requests(at + 1), ONE(at + 1), error)
      call MPI_Waitall(list_count, requests, statuses, error)
    case (6)
      do while (.not. done)
        call MPI_Testall(list_count, requests, done, statuses, error)
      end do
    case (7, 8)
      do while (left > 0)
        done = by == 7
        if (by == 7) call MPI_Waitany(list_count, requests, which, ONE(list_count), error)
        if (by == 8) call MPI_Testany(list_count, requests, which, done, ONE(list_count), error)
        if (.not. done) cycle
        call see(which)
        if (which == at) call check_message(list_count)
        left = left - 1
      end do
      if (by == 7) call MPI_Waitany(list_count, requests, which, MPI_STATUS_IGNORE, error)
      if (by == 8) call MPI_Testany(list_count, requests, which, done, MPI_STATUS_IGNORE, error)
      call check(done .and. which == no_index, 'index of nothing')
    case (9, 10)
      do while (left > 0)
        if (by == 9) call MPI_Waitsome(list_count, requests, some, indices, statuses, error)
        if (by == 10) call MPI_Testsome(list_count, requests, some, indices, statuses, error)
        call check(some >= merge(1, 0, by == 9) .and. some <= left, 'number of completed requests')
        do k = 1, some
          call see(indices(k))
          if (indices(k) == at) call check_message(k)
        end do
        left = left - some
      end do
      if (by == 9) call MPI_Waitsome(list_count, requests, some, indices, MPI_STATUSES_IGNORE, error)
      if (by == 10) call MPI_Testsome(list_count, requests, some, indices, MPI_STATUSES_IGNORE, error)
      call check(some == MPI_UNDEFINED, 'number of nothing')
    end select
    call check(error == MPI_SUCCESS, 'error')
    if (by > 6) return
    do k = 1, list_count
      call see(k)
    end do
    call check_message(at)
  end subroutine

  subroutine check_message(k)
    integer, intent(in) :: k
    call check(TAG(k) == 5 .and. SOURCE(k) == mod(rank + ranks - 1, ranks), 'status')
  end subroutine

  subroutine run(is_persistent)
    logical, intent(in) :: is_persistent
    integer :: by, k, i
    if (is_persistent) call make(.true.)
    do by = 1, calls
      call fill
      if (.not. is_persistent) then
        call make(.false.)
      else if (mod(by, 2) == 0) then
        call MPI_Startall(list_count, requests, error)
      else
        do k = 1, list_count
          call MPI_Start(requests(k), error)
        end do
      end if
      if (list_count > 4) starts(way) = starts(way) + 3  ! the list of all comes after each operation twice
      call complete(by)
      call check(received(1) == value(mod(rank + ranks - 1, ranks), 0), 'message')
      do k = 1, list_count
        call check(is_seen(k) .and. (requests(k) == MPI_REQUEST_NULL .neqv. is_persistent), 'request')
        if (is_message(k)) cycle
        call check(all(to(:, slot(k)) == [(expected(listed(k), root_of(k), i), i = 0, most - 1)]), 'result')
      end do
    end do
    do k = 1, list_count
      if (is_persistent) call MPI_Request_free(requests(k), error)
      call check(requests(k) == MPI_REQUEST_NULL, 'freed request')
    end do
  end subroutine
end program
