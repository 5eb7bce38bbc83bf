"""The only room that imports TVM: modules in, plans out."""
