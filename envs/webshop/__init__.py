"""WebShop (Yao et al. 2022): shopping by instruction, in a shop of our own or with the public catalogues."""
