pub(super) fn read(_t:&str,_o:&super::Own)->Result<super::Table,super::TableError>{todo!()}
